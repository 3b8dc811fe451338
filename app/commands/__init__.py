"""What the commands of `temporal-memory` do; `app.cli` reads their options."""
