"""What makes the documentation site, besides the pages under docs/: `make docs`.

    hooks           what MkDocs calls while it builds: which pages are made, and where links lead
    repository      which files outside of docs/ belong to the site, since pages link to them?
    check           does a page of the finished site lead nowhere, or to another host?

Reference pages are made from the code itself, never typed: whatever a user can import, call or set, or meet
as an error, is there.
"""
