"""Keys of callers, and the log of what cannot be undone.

Revision ID: 0004
Revises: 0003
Create Date: 2026-12-07
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE api_keys (
            id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            namespace    text COLLATE "C",
            role         text COLLATE "C" NOT NULL,
            prefix       text COLLATE "C" NOT NULL,
            digest       bytea NOT NULL,
            label        text,
            created_at   timestamptz NOT NULL,
            last_used_at timestamptz,
            revoked_at   timestamptz,
            CONSTRAINT api_keys_prefix_key UNIQUE (prefix),
            CONSTRAINT api_keys_digest_key UNIQUE (digest),
            CONSTRAINT api_keys_digest_check CHECK (octet_length(digest) = 32),
            CONSTRAINT api_keys_role_check CHECK (role IN ('bot', 'reader', 'admin')),
            CONSTRAINT api_keys_namespace_check CHECK ((role = 'admin') = (namespace IS NULL))
        )
        """
    )
    # No text that anybody said has a column here.
    op.execute(
        """
        CREATE TABLE audit_log (
            id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            at          timestamptz NOT NULL,
            actor       text COLLATE "C" NOT NULL,
            request_id  text COLLATE "C",
            action      text COLLATE "C" NOT NULL,
            namespace   text COLLATE "C",
            user_id     bigint,
            group_id    bigint,
            dialogue_id bigint,
            key_prefix  text COLLATE "C",
            counts      jsonb NOT NULL,
            CONSTRAINT audit_log_action_check CHECK (action IN ('dialogue_deleted', 'session_erased',
                'user_erased', 'memory_forgotten', 'key_created', 'key_revoked'))
        )
        """
    )
    op.execute("CREATE INDEX audit_log_namespace ON audit_log (namespace, id)")


def downgrade() -> None:
    op.execute("DROP TABLE audit_log")
    op.execute("DROP TABLE api_keys")
