"""The KlawError tree: one class for each situation that a caller can tell apart. Those of models: ``klaw.llm.errors``.
Foreign exceptions are translated into these at one boundary each. Their text never holds message content, tokens or
keys, because it may reach a log line or a client."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

INSTALL_AGAIN = "install Klaw again with [all]; in its checkout: `pip install --require-hashes -r requirements.txt`"
"""What helps when a package is missing; never "pip install klaw": that name on the index is not this program."""


class KlawError(Exception):
    """Base of all errors that Klaw raises on purpose."""

    code = ""
    """For programs that call an operation; empty: it follows from the class."""
    argument = ""
    """The argument of the operation that the error is about."""
    text = ""

    def __init__(self, text: str = "") -> None:
        super().__init__(text or self.text)


@attrs.frozen
class Problem:
    """One broken rule."""

    path: str
    """Key path, for instance ``autoRag.topK``, or a field's name; empty for the whole."""
    message: str
    """What the rule is and what was found; never a secret's value."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class BadValue(KlawError, ValueError):
    """A value from outside is not what its place needs. ``problems`` has every wrong field; the text is the first of
    them. Never quotes a value."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(str(problems[0]))
        self.problems = tuple(problems)


class InvalidName(ValueError):
    """A name from outside breaks its rule; the text says which rule and never quotes the name."""


class InvalidValue(ValueError):
    """A value breaks its rule; the text names the field, or the rule, and never quotes the value."""


class CodedError(KlawError):
    """``code`` says in a word what happened, the text in a sentence."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class ProblemsError(KlawError):
    """Several rules may be broken; ``problems`` holds all of them, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


class ConfigError(ProblemsError):
    code = "bad_config"

    @classmethod
    def of(cls, message: str, path: str = "") -> "ConfigError":
        return cls([Problem(path, message)])


class TaskError(ProblemsError):
    code = "bad_task"


class ModelError(KlawError):
    """A model file is missing, broken, of the wrong shape, or could not be fetched."""


class ModelAway(ModelError):
    """A provider's model cannot be asked now; it may be later."""


class EmbeddingUnavailable(ModelError):
    """There is no vector now. ``code``: ``no_model``, ``loading``, ``reembedding``, ``busy``, ``failed`` or ``off``.
    ``degraded``: what a receipt says; None when it is as the user wants it."""

    def __init__(self, code: str, degraded: str | None = None) -> None:
        super().__init__(f"no embeddings: {code}")
        self.code = code
        self.degraded = degraded if degraded is not None or code == "off" else f"embedding_{code}"


class StorageError(KlawError):
    """The store refused or failed; nothing of the request was kept."""


class StorageFull(StorageError):
    """No space is left (or the file system is read-only); the request may be repeated later."""


class VectorsDamaged(StorageError):
    """The vector table is damaged. Vectors can be made again, so nothing of value is lost."""


class StoreDamaged(StorageError):
    """The database file is damaged; the text names the command that makes it again from the logs."""


class SchemaTooNew(StorageError):
    """The database was written by a newer Klaw; this one must not touch it."""


class IdConflict(StorageError):
    """A message id that the client chose is already used in another chat of the same user."""


class TooMuchToday(StorageError):
    """The user has stored as many bytes of messages as one may in a day; ``wait_s`` is how long the day lasts."""

    code = "too_much_today"

    def __init__(self, text: str, wait_s: int) -> None:
        super().__init__(text)
        self.wait_s = wait_s


class TaskExists(StorageError):
    code = "task_exists"
    text = "there is a task of this name already: edit it, or remove it first"


class NoSuchTask(StorageError):
    code = "unknown_task"
    text = "there is no task of this name"


class NotStarted(KlawError):
    """A run was not begun."""


class LimitReached(KlawError):
    """The next call of a model would pass a spending limit of its run, which is ``limit``."""

    def __init__(self, limit: str, note: str) -> None:
        super().__init__(note)
        self.limit = limit


class NoSuchRun(StorageError):
    """The user has no run of this id."""


class RunOver(StorageError):
    """The run has ended already; what it ended with stays."""


class FactExists(StorageError):
    """The user has this fact already, or one of this id. ``fact`` is the id of that one."""

    code = "fact_exists"

    def __init__(self, fact: str) -> None:
        super().__init__(f"nothing was changed: the fact {fact} says the same")
        self.fact = fact


class NoSuchFact(StorageError):
    code, argument = "unknown_fact", "fact"
    text = "there is no fact with this id, or it was replaced or removed"


class NoSuchPerson(StorageError):
    code, argument = "unknown_person", "person"
    text = "there is nobody with this id or name, or the person was merged or removed"


class SamePerson(KlawError):
    code = "same_person"


class CannotUndo(KlawError):
    code = "cannot_undo"


class NoSuchTopic(StorageError):
    text = "there is no such topic"


class TopicChanged(StorageError):
    """Topics or their messages are not as they were when a change was decided; nothing was done."""


class NoSuchChange(StorageError):
    """There is no change of topics that could be taken back."""


class TopicRefused(KlawError):
    """It cannot be done; the text says why and names topics by their ids. ``field`` is the argument that is wrong."""

    def __init__(self, text: str, *, field: str | None = None, code: str = "topics_refused") -> None:
        super().__init__(text)
        self.argument = field or ""
        self.code = code


class CoreUnreadable(StorageError):
    """The user's core_memory.json cannot be read, or is not valid."""


class CoreNotChanged(StorageError):
    """A change of core memory breaks a rule."""


class NoSuchChat(StorageError):
    """The chat does not exist, or is not its user's. ``chat`` is its name."""

    code, argument = "unknown_chat", "chat"

    def __init__(self, chat: str) -> None:
        super().__init__("the chat does not exist")
        self.chat = chat


class CannotReplace(StorageError):
    """There is no message that a variant could replace, or no such variant. The text says why."""

    code, argument = "cannot_replace", "seq"


class NoSuchBase(StorageError):
    code, argument = "unknown_base", "base"
    text = "there is no knowledge base of this name that you may see"


class BaseExists(StorageError):
    code, argument = "base_exists", "name"
    text = "you have a knowledge base of this name already"


class NoSuchSource(StorageError):
    code, argument = "unknown_source", "source"
    text = "there is no source of this id in a knowledge base that you may see"


class NoSuchDocument(StorageError):
    code, argument = "unknown_document", "document"
    text = "there is no document of this id in a knowledge base that you may see"


class GraphError(CodedError):
    """A graph could not be asked, or did not answer as it should. ``code`` is ``unknown_endpoint``, ``bad_address``,
    ``unreachable``, ``timeout``, ``refused``, ``malformed``, ``too_large``, ``unreadable`` (a file), ``damaged`` (its
    store), ``full``, ``loading``, ``busy``, ``crowded``, ``paused`` or ``bad_query``."""


class NotAllowed(StorageError):
    """The user's role does not allow it."""

    code = "not_allowed"


class SummaryOutdated(StorageError):
    """What a summary was made from has changed meanwhile; it is not stored."""


class SourceForgotten(SummaryOutdated):
    """The user has forgotten something since what it is made of was read; it can be made again at once."""


class ProtocolError(CodedError):
    """A peer broke the wire protocol. ``code`` is what the error frame carries, ``marks`` what tells which frame it
    answers (``ref``, ``id``, ``chat``), as far as that could be read."""

    def __init__(self, code: str, message: str, *, close: bool = False) -> None:
        super().__init__(code, message)
        self.close = close
        self.marks: dict[str, Any] = {}


class ToolRefused(KlawError):
    """A tool cannot do what it was asked to do, and has changed nothing. The text is for the model: what is wrong, and
    what to do instead. It may hold a path or an address, so it goes into no log."""


class PageGone(ToolRefused):
    """There is nothing at an address any more."""


class NotThere(ToolRefused):
    """There is no file or folder of this path."""


class NoPriceList(KlawError):
    """The price list could not be read."""


class BadAnswer(ValueError):
    """A model's answer cannot be used."""


class NoSummary(CodedError):
    """The model gave no summary. ``code`` is ``empty``, ``refused`` or ``too_long``."""

    def __init__(self, code: str) -> None:
        super().__init__(code, f"the model gave no summary ({code})")


class McpError(KlawError):
    """An MCP server cannot be used, or its connection is over."""


class CannotListen(KlawError):
    """The address is taken or not there: by the time of the next try it may be free."""


class ActorStopped(KlawError):
    """The actor that was asked has stopped, failed, or was restarted before it answered."""


class ActorTooSlow(KlawError):
    """The actor did not answer before the caller's deadline. No ``TooSlowError``, which a broad handler would
    swallow."""


class HttpRefusal(KlawError):
    """A request to the gateway that is answered with an HTTP status, the text, and headers."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers or {}


class AttachmentRefused(CodedError):
    """A file of a message is not taken, or is not there."""


class VoiceError(CodedError):
    """A sound cannot be written down, or a text not be read aloud. The text is for its user alone."""


class TooManyChats(KlawError):
    """The user has ``chats.maxPerUser`` chats already."""


class ChatBusy(KlawError):
    """The chat's mailbox is full: the client should send again a little later."""


class AnswerRunning(KlawError):
    """Nothing of a chat can be replaced while an answer is written or about to be."""

    code = "answer_running"


class InputError(KlawError):
    """Standard input cannot be used."""


class ServerUnreachable(KlawError):
    """No connection to the server could be made for as long as the client was told to try."""


class ServerRefused(CodedError):
    """The server will not talk to this client (token, protocol version, origin); trying again cannot help."""


class RequestRefused(CodedError):
    """The server answered one frame with an error; the connection lives on."""

    def __init__(self, code: str, message: str, *, retryable: bool = False, retry_after_ms: int | None = None) -> None:
        super().__init__(code, message)
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms


class ConnectionLost(KlawError):
    """The connection broke before a request was answered. Messages are sent again by themselves; requests are not."""


class ClientClosed(KlawError):
    """The client was closed by its owner."""
