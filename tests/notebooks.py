"""Example notebooks: read, and run in a kernel of the current environment."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

from artimon.runtime.settings import child_environment
from tests.e2e.conftest import ROOT

FOLDER = ROOT / "examples" / "notebooks"


class OwnKernel(AsyncKernelManager):
    """Kernel of the current environment; kernels installed for the user are ignored."""

    @property
    def kernel_spec(self) -> KernelSpec:
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Artimon's tests", language="python")


def read_notebook(name: str) -> NotebookNode:
    """Read the example notebook of that name."""
    library: Any = nbformat  # its functions have no types
    notebook: NotebookNode = library.read(FOLDER / name, as_version=4)
    return notebook


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Code cells of a notebook that is valid and stored without outputs."""
    library: Any = nbformat
    library.validate(notebook)
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in codes)
    return codes


def run_notebook(
    notebook: NotebookNode, check: str, folder: Path, places: Mapping[str, str], timeout_s: int = 60
) -> dict[str, Any]:
    """Run the notebook with `places` in the kernel's environment and keep its outputs in it. Returns the JSON that
    `check`, an added last cell, prints. `folder` is the kernel's working folder."""
    library: Any = nbformat
    notebook.cells.append(library.v4.new_code_cell(check, id="check"))
    environment = {
        "IPYTHONDIR": str(folder),
        "PYTHONPATH": str(ROOT),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    kernel = OwnKernel(connection_file=str(folder / "kernel.json"))
    client = NotebookClient(notebook, km=kernel, timeout=timeout_s, resources={"metadata": {"path": str(folder)}})
    client.execute(env=child_environment({**environment, **places}))
    told = "".join(output.text for output in notebook.cells[-1].outputs if output.get("name") == "stdout")
    found: dict[str, Any] = json.loads(told)
    return found
