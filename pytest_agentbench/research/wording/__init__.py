"""Every text that judges of research reports read and that is not of the report, in English and Chinese."""

from pytest_agentbench.records import Language
from pytest_agentbench.research.wording.base import Wording
from pytest_agentbench.research.wording.chinese import CHINESE
from pytest_agentbench.research.wording.english import ENGLISH

PROMPT_VERSION = "1"
"""Part of every kept reply's identity: raised when a wording, an order or what is shown changes."""

WORDINGS: dict[Language, Wording] = {"en": ENGLISH, "zh": CHINESE}
"""By the language of the query."""

__all__ = ["PROMPT_VERSION", "WORDINGS", "Wording"]
