"""What the scripts of tests/python share: each asserts, and says nothing when all is right."""

import contextlib
import subprocess


@contextlib.contextmanager
def raises(kind, *words):
    """The block raises this exception, whose text has all the words."""
    try:
        yield
    except kind as e:
        assert all(w in str(e) for w in words), f"{e!r} does not say {words}"
    else:
        raise AssertionError(f"no {kind.__name__}")


def shell(command, **kwargs):
    """Standard output of a shell command that has to succeed."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], check=True, stdout=subprocess.PIPE, **kwargs
    ).stdout


def valid(*files):
    """h5check finds nothing."""
    done = subprocess.run(["h5check", *map(str, files)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout.decode()
