"""Turns that wait for a score, summaries, retrievals, corrections, and the daily sweep.

Revision ID: 0002
Revises: 0001
Create Date: 2026-12-01
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE turns (
            turn_id               text COLLATE "C" PRIMARY KEY,
            namespace             text COLLATE "C" NOT NULL,
            user_id               bigint NOT NULL,
            group_id              bigint,
            group_key             bigint NOT NULL GENERATED ALWAYS AS (coalesce(group_id, 0)) STORED,
            message_uuid          text COLLATE "C" NOT NULL,
            message_id            bigint,
            written_hash          bigint NOT NULL,
            sender_name           text,
            assistant_name        text,
            user_content          text NOT NULL,
            reply                 text,
            status                text COLLATE "C" NOT NULL,
            outcome               text COLLATE "C",
            score                 integer,
            retention             text COLLATE "C",
            expires_at            timestamptz,
            user_dialogue_id      bigint,
            assistant_dialogue_id bigint,
            memories              jsonb NOT NULL DEFAULT '[]',
            summary_ids           bigint[] NOT NULL DEFAULT '{}',
            degraded              boolean NOT NULL DEFAULT false,
            prompt_tokens         integer,
            completion_tokens     integer,
            memory_tokens         integer,
            turn_hash             bigint,
            attempts              smallint NOT NULL DEFAULT 0,
            available_at          timestamptz NOT NULL,
            created_at            timestamptz NOT NULL,
            replied_at            timestamptz,
            evaluated_at          timestamptz,
            CONSTRAINT turns_namespace_message_uuid_key UNIQUE (namespace, message_uuid),
            CONSTRAINT turns_status_check
                CHECK (status IN ('answering', 'failed', 'pending', 'scored', 'unscored')),
            CONSTRAINT turns_outcome_check
                CHECK (outcome IN ('scored', 'failed', 'filtered', 'cached', 'disabled')),
            CONSTRAINT turns_score_check CHECK (score BETWEEN 0 AND 100),
            CONSTRAINT turns_retention_check
                CHECK (retention IN ('none', 'one_day', 'one_week', 'one_month', 'forever')),
            CONSTRAINT turns_reply_check
                CHECK ((reply IS NOT NULL) = (status IN ('pending', 'scored', 'unscored')))
        )
        """
    )
    op.execute("CREATE INDEX turns_pending ON turns (available_at, turn_id) WHERE status = 'pending'")
    op.execute("CREATE INDEX turns_answering ON turns (available_at) WHERE status = 'answering'")
    op.execute("CREATE INDEX turns_session ON turns (namespace, group_key, user_id)")
    op.execute(
        "CREATE INDEX turns_turn_hash ON turns (namespace, turn_hash, evaluated_at DESC)"
        " WHERE outcome = 'scored'"
    )
    op.execute("CREATE INDEX turns_created_at ON turns (created_at)")
    op.execute('ALTER TABLE window_messages ADD COLUMN turn_id text COLLATE "C"')
    op.execute("CREATE INDEX window_messages_turn_id ON window_messages (turn_id) WHERE turn_id IS NOT NULL")
    op.execute(
        """
        CREATE TABLE summaries (
            id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            namespace   text COLLATE "C" NOT NULL,
            user_id     bigint NOT NULL,
            group_id    bigint,
            group_key   bigint NOT NULL GENERATED ALWAYS AS (coalesce(group_id, 0)) STORED,
            dialogue_id bigint NOT NULL,
            content     text NOT NULL,
            since       timestamptz NOT NULL,
            until       timestamptz NOT NULL,
            messages    integer NOT NULL,
            created_at  timestamptz NOT NULL
        )
        """
    )
    op.execute("CREATE INDEX summaries_session ON summaries (namespace, group_key, user_id, until, id)")
    op.execute(
        """
        CREATE TABLE compressions (
            namespace    text COLLATE "C" NOT NULL,
            group_key    bigint NOT NULL,
            user_id      bigint NOT NULL,
            attempts     smallint NOT NULL DEFAULT 0,
            available_at timestamptz NOT NULL,
            PRIMARY KEY (namespace, group_key, user_id)
        )
        """
    )
    op.execute(
        """
        CREATE TABLE retrievals (
            dialogue_id  bigint PRIMARY KEY,
            retrieved_at timestamptz NOT NULL
        ) WITH (fillfactor = 70)
        """
    )
    op.execute("ALTER TABLE dialogues ADD COLUMN corrects bigint, ADD COLUMN corrected_by bigint")
    op.execute(
        """
        CREATE TABLE correction_jobs (
            dialogue_id  bigint PRIMARY KEY,
            attempts     smallint NOT NULL DEFAULT 0,
            available_at timestamptz NOT NULL DEFAULT now()
        )
        """
    )
    op.execute(
        """
        CREATE INDEX dialogues_summaries ON dialogues (namespace, group_key, user_id, created_at, id)
            WHERE kind = 'summary'
        """
    )
    op.execute(
        """
        CREATE TABLE sweeps (
            day          date PRIMARY KEY,
            started_at   timestamptz NOT NULL,
            available_at timestamptz NOT NULL,
            finished_at  timestamptz,
            expired      integer NOT NULL DEFAULT 0,
            unretrieved  integer NOT NULL DEFAULT 0
        )
        """
    )
    op.execute(
        """
        CREATE INDEX dialogues_forgettable ON dialogues (stored_at, id)
            WHERE NOT pinned AND kind NOT IN ('fact', 'preference', 'decision') AND coalesce(score, 0) < 91
        """
    )


def downgrade() -> None:
    op.execute("DROP INDEX dialogues_forgettable")
    op.execute("DROP INDEX dialogues_summaries")
    op.execute("ALTER TABLE dialogues DROP COLUMN corrects, DROP COLUMN corrected_by")
    op.execute("ALTER TABLE window_messages DROP COLUMN turn_id")
    for table in ("sweeps", "correction_jobs", "retrievals", "compressions", "summaries", "turns"):
        op.execute(f"DROP TABLE {table}")
