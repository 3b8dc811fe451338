"""What the cosines of an embedding model mean, kept with it; whether a turn's memories held an answer.

Revision ID: 0005
Revises: 0004
Create Date: 2026-12-07
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE embedding_models ADD COLUMN calibration jsonb")
    op.execute("ALTER TABLE turns ADD COLUMN no_match boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    op.execute("ALTER TABLE turns DROP COLUMN no_match")
    op.execute("ALTER TABLE embedding_models DROP COLUMN calibration")
