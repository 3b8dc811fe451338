"""The record of messages, the queue of what waits for a vector, and the hot window.

Revision ID: 0001
Revises:
Create Date: 2026-12-01

Why the indexes are what they are: docs/decisions/0002-session-search.md.
"""

from alembic import context, op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_WIDEST_IN_LINE = 3500


def upgrade() -> None:
    options = context.get_context().opts
    dimensions = int(options["dimensions"])
    zone = str(options["zone"]).replace("'", "''")
    op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    op.execute(
        """
        CREATE TABLE embedding_models (
            id         smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name       text NOT NULL,
            dimensions integer NOT NULL,
            CONSTRAINT embedding_models_name_dimensions_key UNIQUE (name, dimensions)
        )
        """
    )
    op.execute(
        f"""
        CREATE TABLE dialogues (
            id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            user_id            bigint NOT NULL,
            group_id           bigint,
            group_key          bigint NOT NULL GENERATED ALWAYS AS (coalesce(group_id, 0)) STORED,
            created_at         timestamptz NOT NULL DEFAULT now(),
            stored_at          timestamptz NOT NULL DEFAULT now(),
            expires_at         timestamptz,
            visible_until      timestamptz NOT NULL
                GENERATED ALWAYS AS (coalesce(expires_at, 'infinity'::timestamptz)) STORED,
            qq_message_id      bigint,
            written_hash       bigint NOT NULL,
            token_count        integer NOT NULL,
            score              integer,
            created_date       date NOT NULL
                GENERATED ALWAYS AS ((created_at AT TIME ZONE '{zone}')::date) STORED,
            embedding_model_id smallint,
            pinned             boolean NOT NULL DEFAULT false,
            outdated           boolean NOT NULL DEFAULT false,
            namespace          text COLLATE "C" NOT NULL DEFAULT 'default',
            message_uuid       text COLLATE "C" NOT NULL,
            chat_type          text COLLATE "C" NOT NULL,
            role               text COLLATE "C" NOT NULL,
            kind               text COLLATE "C" NOT NULL DEFAULT 'chat',
            embedding_status   text COLLATE "C" NOT NULL DEFAULT 'pending',
            embedding_error    text,
            sender_name        text,
            content            text NOT NULL,
            terms              bit(512) NOT NULL,
            term_bits          smallint NOT NULL GENERATED ALWAYS AS (bit_count(terms)::smallint) STORED,
            embedding          halfvec({dimensions}),
            embedding_bits     bit({dimensions})
                GENERATED ALWAYS AS (binary_quantize(embedding)::bit({dimensions})) STORED,
            CONSTRAINT dialogues_namespace_message_uuid_key UNIQUE (namespace, message_uuid),
            CONSTRAINT dialogues_user_id_check CHECK (user_id > 0),
            CONSTRAINT dialogues_group_id_check CHECK (group_id <> 0),
            CONSTRAINT dialogues_chat_type_check
                CHECK (chat_type = CASE WHEN group_id IS NULL THEN 'private' ELSE 'group' END),
            CONSTRAINT dialogues_role_check CHECK (role IN ('user', 'assistant')),
            CONSTRAINT dialogues_kind_check
                CHECK (kind IN ('chat', 'fact', 'preference', 'decision', 'summary')),
            CONSTRAINT dialogues_score_check CHECK (score BETWEEN 0 AND 100),
            CONSTRAINT dialogues_embedding_check
                CHECK (embedding_status IN ('pending', 'ready', 'failed')
                       AND (embedding_status = 'ready') = (embedding IS NOT NULL)
                       AND (embedding IS NULL) = (embedding_model_id IS NULL))
        ) WITH (
            toast_tuple_target = {row_target(dimensions)},
            autovacuum_vacuum_insert_scale_factor = 0.01,
            autovacuum_vacuum_insert_threshold = 2000,
            autovacuum_vacuum_scale_factor = 0.02,
            autovacuum_analyze_scale_factor = 0.05
        )
        """
    )
    # In line, a search's second stage reads one page a candidate; a wider vector does not fit into a page.
    storage = "PLAIN" if dimensions <= _WIDEST_IN_LINE else "EXTERNAL"
    op.execute(f"ALTER TABLE dialogues ALTER COLUMN embedding SET STORAGE {storage}")
    op.execute(
        """
        CREATE INDEX dialogues_timeline ON dialogues (namespace, group_key, user_id, created_at, id)
            WHERE kind <> 'summary'
        """
    )
    op.execute(
        """
        CREATE INDEX dialogues_session_search
            ON dialogues (namespace, group_key, user_id, created_at, id)
            INCLUDE (embedding_bits, terms, term_bits, embedding_model_id, visible_until, role)
            WHERE embedding_status = 'ready' AND NOT outdated AND kind <> 'summary'
        """
    )
    op.execute(
        """
        CREATE INDEX dialogues_group_timeline ON dialogues (namespace, group_key, created_at, id)
            WHERE group_id IS NOT NULL AND kind <> 'summary'
        """
    )
    op.execute(
        """
        CREATE INDEX dialogues_without_vector ON dialogues (namespace, group_key, user_id)
            WHERE embedding_status <> 'ready'
        """
    )
    op.execute(
        "CREATE INDEX dialogues_qq_message_id ON dialogues (qq_message_id) WHERE qq_message_id IS NOT NULL"
    )
    op.execute("CREATE INDEX dialogues_failed ON dialogues (id) WHERE embedding_status = 'failed'")
    op.execute("CREATE INDEX dialogues_expires_at ON dialogues (expires_at) WHERE expires_at IS NOT NULL")
    op.execute(
        """
        CREATE TABLE embedding_jobs (
            dialogue_id  bigint PRIMARY KEY,
            enqueued_at  timestamptz NOT NULL DEFAULT now(),
            available_at timestamptz NOT NULL DEFAULT now(),
            attempts     smallint NOT NULL DEFAULT 0
        ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500)
        """
    )
    op.execute("CREATE INDEX embedding_jobs_available_at ON embedding_jobs (available_at)")
    op.execute(
        """
        CREATE TABLE window_messages (
            id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            namespace   text COLLATE "C" NOT NULL DEFAULT 'default',
            user_id     bigint NOT NULL,
            group_id    bigint,
            group_key   bigint NOT NULL GENERATED ALWAYS AS (coalesce(group_id, 0)) STORED,
            dialogue_id bigint,
            role        text COLLATE "C" NOT NULL,
            content     text NOT NULL,
            sender_name text,
            token_count integer NOT NULL,
            created_at  timestamptz NOT NULL,
            CONSTRAINT window_messages_role_check CHECK (role IN ('user', 'assistant'))
        )
        """
    )
    op.execute(
        """
        CREATE INDEX window_messages_session
            ON window_messages (namespace, group_key, user_id, created_at, id) INCLUDE (token_count)
        """
    )
    op.execute(
        """
        CREATE INDEX window_messages_dialogue_id ON window_messages (dialogue_id)
            WHERE dialogue_id IS NOT NULL
        """
    )


def row_target(dimensions: int) -> int:
    """The size above which a row's text is moved out of line, in bytes: what fills a page without waste.

    A page takes 8168 bytes of rows and their 4-byte line pointers; a row's fixed part is its vector
    (2 bytes a dimension), its bits and about 340 bytes. PostgreSQL takes 128 to 8160.
    """
    if dimensions > _WIDEST_IN_LINE:
        return 2040
    fixed = dimensions * 2 + dimensions // 8 + 340
    rows_a_page = max(1, 8168 // (fixed + 200))
    return max(128, min(8160, (8168 // rows_a_page - 4) // 8 * 8))


def downgrade() -> None:
    for table in ("window_messages", "embedding_jobs", "dialogues", "embedding_models"):
        op.execute(f"DROP TABLE {table}")
