"""The Flower app of a deployment: the ServerApp that trains, and a ClientApp that opens its site for every message.

Sites started by ``idiolect deploy site`` do not use this ClientApp: they answer from one process that stays, and run
no code that the server sends.  It serves a SuperNode that somebody starts in Flower's own way, with the site's folder
in its configuration: ``--node-config 'site="/path/of/the/site"'``.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from idiolect.deploy.receiving_grid import ReceivingGrid
from idiolect.deploy.server import run_server
from idiolect.deploy.signed_messages import from_record, to_record
from idiolect.deploy.site import Site

__all__ = ["client", "server"]

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Trains the deployment whose folder the app's configuration names."""
    run_server(ReceivingGrid(grid), Path(str(context.run_config["deployment"])))


@client.query()
def query(message: Message, context: Context) -> Message:
    """Answers one message of the server."""
    site = Site.open(Path(str(context.node_config["site"])))
    return Message(to_record(site.reply(from_record(message.content))), reply_to=message)
