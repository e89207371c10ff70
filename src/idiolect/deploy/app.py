"""What Flower runs: the server's loop, and a client that opens its site anew for every message.

Sites started by ``idiolect deploy site`` answer by themselves, from one process that stays, and run no code that the
server sends.  The client here serves a SuperNode that somebody starts in Flower's own way, with the site's folder in
its configuration: ``--node-config 'site="/path/of/the/site"'``.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from idiolect.deploy.carrier import record_of, sealed_of
from idiolect.deploy.server import run_server
from idiolect.deploy.site import Site

__all__ = ["client", "server"]

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    run_server(grid, Path(str(context.run_config["deployment"])))


@client.query()
def query(message: Message, context: Context) -> Message:
    site = Site.open(Path(str(context.node_config["site"])))
    return Message(record_of(site.reply(sealed_of(message.content))), reply_to=message)
