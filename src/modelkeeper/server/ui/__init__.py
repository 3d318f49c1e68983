"""The zoo to look at: pages for people, inside the service.

Templates are rendered here and nothing in them is trusted; scripts are small ES modules without a build step
that get their data as JSON and put it into the page as text. See docs/dashboard.md.
"""
