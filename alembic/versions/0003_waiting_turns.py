"""Turns that are kept before they are judged, and messages by what corrected them.

Revision ID: 0003
Revises: 0002
Create Date: 2026-12-07
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE turns ADD COLUMN kept_early boolean NOT NULL DEFAULT false")
    op.execute("CREATE INDEX turns_waiting ON turns (replied_at) WHERE status = 'pending' AND NOT kept_early")
    op.execute(
        "CREATE INDEX dialogues_corrected_by ON dialogues (corrected_by) WHERE corrected_by IS NOT NULL"
    )


def downgrade() -> None:
    op.execute("DROP INDEX dialogues_corrected_by")
    op.execute("DROP INDEX turns_waiting")
    op.execute("ALTER TABLE turns DROP COLUMN kept_early")
