"""What the chat provider for tests says: always the same to the same prompt, and only what stands in it.

Who asks is known by the data in the last message: turns as JSON (`user`, `assistant`, `no` in a batch) want
scores, messages as JSON (`time`, `speaker`, `content`) a summary, everything else an answer.
"""

import json
import re
from typing import Any

_MEMORY_LINE = re.compile(
    r"^\[(?P<time>[\d\- :]{19})\] \((?P<ago>[^)]+)\) "
    r"(?P<role>user|assistant)(?:\([^)]*\))?: (?P<content>.*)$",
    re.MULTILINE,
)
_TERM = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]+")
_QUESTION = re.compile(
    r"(?i)[?？]\s*$|什么|多少|哪|谁|几[点个号月]|吗$|呢$|怎么|还记得|"
    r"^(?:what|who|when|where|which|how|do you|did i)\b"
)
_NO_TERMS = {"我的", "是什", "什么", "多少", "是多", "的是", "你还", "还记", "记得", "得我", "哪里", "哪个"}
_NO_TERMS |= {"what", "is", "the", "my", "do", "you", "did", "i", "was", "to", "a"}
_GREETING = re.compile(r"(?i)^(?:你好|您好|早上好|晚安|在吗|嗨|hi|hello|hey|测试|test)\W*$")
_THANKS = re.compile(r"(?i)^(?:谢谢|多谢|感谢|thanks|thank you)\W*$")
_SCORES = (
    (_GREETING, 5),
    (re.compile(r"(?i)^(?:好的?|嗯+|哦+|ok|okay|收到|哈+|行)\W*$"), 12),
    (_THANKS, 25),
    (
        re.compile(
            r"(?i)我叫|我住|我家|我的.{0,8}是|生日|订单|地址|电话|过敏|记住|my name|i live|remember|birthday"
        ),
        93,
    ),
    (
        re.compile(
            r"(?i)决定|定了|改成|选.{0,6}方案|配置|端口|报错|安装|部署|会议|截止|decided|error|deploy|deadline"
        ),
        85,
    ),
    (re.compile(r"(?i)喜欢|讨厌|习惯|推荐|prefer|favou?rite|recommend"), 65),
    (_QUESTION, 52),
)
_OTHER_SCORE = 45
_SHORT_SCORE, _SHORT_CHARS = 15, 4
_SUMMARY_CHARS = 160


def kind_of(messages: list[dict[str, Any]]) -> str:
    """`chat`, `evaluation`, `batch` or `summary`."""
    quoted = _quoted(messages)
    if quoted and {"user", "assistant"} <= quoted[0].keys():
        return "batch" if "no" in quoted[0] else "evaluation"
    if quoted and {"time", "speaker", "content"} <= quoted[0].keys():
        return "summary"
    return "chat"


def answer_to(kind: str, messages: list[dict[str, Any]]) -> str:
    """What is said to this prompt."""
    quoted = _quoted(messages)
    if kind == "evaluation":
        return str(_score(quoted[0]["user"]))
    if kind == "batch":
        return json.dumps([_score(turn["user"]) for turn in quoted])
    if kind == "summary":
        return _summary(quoted)
    return _reply(messages)


def _quoted(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for line in str(messages[-1].get("content", "")).splitlines() if messages else []:
        if line.startswith("{"):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            found.append(value)
    return found


def _score(user_message: str) -> int:
    text = user_message.strip()
    for pattern, score in _SCORES:
        if pattern.search(text):
            return score
    return _SHORT_SCORE if len(text) <= _SHORT_CHARS else _OTHER_SCORE


def _summary(lines: list[dict[str, Any]]) -> str:
    said = [line for line in lines if line["speaker"].startswith("user")]
    said.sort(key=lambda line: -_score(line["content"]))
    parts: list[str] = []
    for line in said:
        part = f"{line['speaker']}（{line['time']}）：{line['content']}"
        if sum(map(len, parts)) + len(part) <= _SUMMARY_CHARS:
            parts.append(part)
    return "；".join(parts) or said[0]["content"][:_SUMMARY_CHARS] if said else "没有要点。"


def _reply(messages: list[dict[str, Any]]) -> str:
    question = str(messages[-1]["content"]).strip()
    is_english = not re.search(r"[\u3400-\u9fff]", question)
    if _GREETING.search(question):
        return "Hello! What can I do for you?" if is_english else "你好！有什么可以帮您？"
    if _THANKS.search(question):
        return "You're welcome." if is_english else "不客气。"
    if not _QUESTION.search(question):
        return f"Noted: {question}" if is_english else f"好的，我记下了：{question}"
    found = _best_line(question, messages)
    if found is None:
        return "I do not know that yet." if is_english else "这个我还不知道。"
    when, content = found
    return f'You said ({when}): "{content}"' if is_english else f"您说过（{when}）：“{content}”"


def _best_line(question: str, messages: list[dict[str, Any]]) -> tuple[str, str] | None:
    """What the user said about it, the newest where several say as much: memories first, then the window."""
    system = "\n".join(str(message["content"]) for message in messages if message["role"] == "system")
    said = [
        (f"{line['time']}，{line['ago']}", line["content"])
        for line in _MEMORY_LINE.finditer(system)
        if line["role"] == "user"
    ]
    said += [("本次对话", str(message["content"])) for message in messages[:-1] if message["role"] == "user"]
    asked = _terms(question)
    best: tuple[str, str] | None = None
    most = 0
    for when, content in said:
        shared = len(asked & _terms(content))
        if shared >= max(most, 1) and not _QUESTION.search(content):
            best, most = (when, content), shared
    return best


def _terms(text: str) -> set[str]:
    terms: set[str] = set()
    for match in _TERM.finditer(text.lower()):
        word = match.group()
        if word.isascii() or len(word) == 1:
            terms.add(word)
        else:
            terms |= {word[place : place + 2] for place in range(len(word) - 1)}
    return terms - _NO_TERMS
