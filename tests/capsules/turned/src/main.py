"""An agent with full control of its container."""

import http.client
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

CHANNEL = ("127.0.0.1", 8700)


def execute(inputs, ctx):
    return ctx.agent(tools=[ask, crowd, connect, shell]).run(inputs=inputs).output


def ask(method: str, path: str, body: str) -> str:
    """Sends a request to the orchestrator.

    Args:
        method: Such as POST.
        path: Such as /handoff.
        body: JSON.
    """
    connection = http.client.HTTPConnection(*CHANNEL, timeout=60)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    return f"{response.status} {response.read().decode()}"


def crowd(count: int, method: str, path: str, body: str) -> str:
    """Sends many concurrent requests to the orchestrator.

    Args:
        count: Number of requests.
        method: Such as POST.
        path: Such as /handoff.
        body: JSON.
    """
    with ThreadPoolExecutor(count) as pool:
        return "\n".join(pool.map(lambda _: ask(method, path, body), range(count)))


def connect(place: str) -> str:
    """Connects to an external host.

    Args:
        place: Name or address, and port.
    """
    with socket.create_connection(CHANNEL, 60) as connection:
        connection.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        return connection.recv(65536).decode()


def shell(command: str) -> str:
    """Runs a command.

    Args:
        command: For /bin/sh.
    """
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr
