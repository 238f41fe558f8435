from __future__ import annotations

from pathlib import Path

import pytest

from pytest_agentbench.config.profiles import pinning_problem
from pytest_agentbench.workspaces.containers.compose_file import list_base_images, list_downloads


def written(folder: Path, text: str) -> Path:
    (folder / "Dockerfile").write_text(text)
    return folder / "Dockerfile"


def test_the_images_that_it_needs(tmp_path: Path) -> None:
    text = """
    ARG V=12
    FROM --platform=linux/amd64 registry:5000/made AS Build
    # FROM comment:1
    from debian:$V \\
      as other
    FROM scratch
    COPY --from=build --chown=1 /a /b
    COPY --from=0 /a /b
    COPY --from=tool:1 /a /b
    FROM build
    """
    assert list_base_images(written(tmp_path, text)) == ["registry:5000/made", "debian:12", "tool:1"]


@pytest.mark.parametrize(
    ("text", "images"),
    [
        ("ARG I=latest\nFROM debian:${I}", ["debian:latest"]),
        ("FROM debian:${I:-latest}", ["debian:latest"]),
        ("ARG I=\nFROM debian:${I:-latest}", ["debian:latest"]),
        ("ARG I=12\nFROM debian:${I:-latest}", ["debian:12"]),
        ("ARG I=12\nFROM debian:${I:+latest}", ["debian:latest"]),
        ("ARG A=late B='st'\nARG I=$A${B}\nFROM \"debian:$I\"", ["debian:latest"]),
        ("ARG I=12\nARG I=latest\nFROM debian:$I", ["debian:latest"]),
        ("ARG N=made\nFROM debian:12 AS made\nARG N=other:latest\nFROM $N", ["debian:12"]),
        ("ARG I\nFROM debian:$I", ["debian:$I"]),
        ("FROM debian:12\nARG I=12\nFROM debian:$I", ["debian:12", "debian:$I"]),
        ("ARG I=13\nFROM debian:${I#1}", ["debian:${I#1}"]),
        ("ARG I='12\nFROM debian:$I", ["debian:$I"]),
        ("ARG I=12\nFROM debian:${I:-${J}}", ["debian:${I:-${J}}"]),
    ],
)
def test_variables_of_images(tmp_path: Path, text: str, images: list[str]) -> None:
    found = list_base_images(written(tmp_path, f"{text}\n"))
    assert found == images
    floats = any(":latest" in image or "$" in image for image in images)
    assert any(pinning_problem(image) for image in found) == floats


@pytest.mark.parametrize(
    "text",
    [
        "ADD http://127.0.0.1/x /x",
        " add --chown=1 https://a/x /x",
        "ADD \\\n# comment\n\n  http://a/x /x",
        "ONBUILD ADD http://a/x /x",
        "ARG U=http://a/x\nADD ${U} /x",
        'ADD ["http\\u003a//a/x", "/x"]',
        "# escape=`\nADD `\n http://a/x /x",
        "RUN echo `\nADD http://a/x /x",
        "# said\n# escape=`\nRUN echo `date`\nADD http://a/x /x",
        "\ufeffADD http://a/x /x",
        "ADD\thttp://a/x /x",
    ],
)
def test_downloads_of_the_daemon_are_listed(tmp_path: Path, text: str) -> None:
    assert len(list_downloads(written(tmp_path, f"{text}\n"))) == 1


@pytest.mark.parametrize("text", ["ADD data.tar /x", "COPY a:b /x", "RUN echo ADD http://a/x", "# ADD http://a/x"])
def test_files_of_the_build_folder_are_no_downloads(tmp_path: Path, text: str) -> None:
    assert list_downloads(written(tmp_path, f"{text}\n")) == []
