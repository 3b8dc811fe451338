"""The record of who said what: write, read, edit, erase, and embed what is pending."""
