"""A web site that is operated by clicks and typing: a shop, a wiki, forms, accounts and orders, on several surfaces."""
