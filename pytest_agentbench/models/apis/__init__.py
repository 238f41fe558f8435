"""APIs of models: one codec each for Chat Completions, Responses, Messages and Google's generateContent.

Each reads the requests of agents and writes their replies, and writes the requests to endpoints and reads their
replies. The internal form is Chat Completions.

Others use: nothing
"""
