"""Models: where each is asked, the chat client with its retries and limits, prices, and scripted models offline."""
