"""Hazards of meaning: phrases that a reviewer should look at. They prove nothing, and their absence even less."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sandbox.vet.containment import shown
from sandbox.vet.findings import Finding, Severity
from sandbox.vet.hazards.interface import Subject
from sandbox.vet.hazards.texts import texts

MAX_READ_CHARS: Final = 16_384
"""Characters of one text that are searched; longer texts block anyway."""

MAX_FINDINGS: Final = 3
"""Findings of one sort for one tool."""


class Phrases:
    """Looks for phrases in every text of a definition.

    Patterns are flat (no quantified group inside another), so that matching takes time linear to the text.
    """

    id: str
    title: str
    severity: Severity = "inform"
    mend: str
    said: str
    patterns: tuple[str, ...]

    def __init__(self) -> None:
        self._pattern = re.compile("|".join(f"(?:{pattern})" for pattern in self.patterns), re.IGNORECASE)

    def check(self, subject: Subject) -> Iterator[Finding]:
        """Yield the first few texts with one of the phrases."""
        found = 0
        for text in texts(subject.definition):
            match = self._pattern.search(text.text[:MAX_READ_CHARS])
            if match is not None and found < MAX_FINDINGS:
                found += 1
                yield subject.finding(self, text.place, f"{self.said}: {shown(_around(text.text, match))}")


def _around(text: str, match: re.Match[str]) -> str:
    """Return a match with some words around it."""
    start, end = max(0, match.start() - 20), min(len(text), match.end() + 40)
    return " ".join(text[start:end].split())


class Instructions(Phrases):
    """Sentences that speak to the model rather than about the tool."""

    id = "VET-202"
    title = "instructions to the model"
    mend = "the contract's own description is what callers see; keep such sentences out of it"
    said = "the text speaks to the model"
    patterns = (
        (
            r"\b(?:ignore|disregard|forget|override)\b.{0,20}\b(?:previous|prior|above|earlier|all|other|system)\b"
            r".{0,20}\b(?:instruction|rule|prompt|message|guideline|direction)"
        ),
        r"<\s*/?\s*(?:important|system|hidden|secret|instructions?|assistant|admin)\s*>",
        r"\[\s*(?:important|system|hidden|instructions?|inst)\s*\]",
        (
            r"\b(?:do not|don't|never|without)\b.{0,12}\b(?:tell|mention|inform|notify|reveal|show|disclose|alert)\w*"
            r".{0,20}\b(?:the |any |your )?(?:user|human|person|operator|anyone|them|it|this|that)\b"
        ),
        (
            r"\b(?:you|the (?:model|assistant|agent|llm|ai)) (?:must|should|shall|need to|have to)\b.{0,20}"
            r"\b(?:call|use|invoke|run|read|include|send|pass|append|execute|respond|access|provide)\b"
        ),
        r"\bbefore (?:using|calling|invoking|executing|running|providing)\b.{0,40}\b(?:tool|function|operation)\b",
        (
            r"\b(?:always|only) (?:use|call|invoke|prefer) this (?:tool|function)\b"
            r".{0,40}\b(?:instead|first|before|over|no matter)"
        ),
        r"\b(?:reveal|print|show|leak)\b.{0,20}\b(?:system|developer) prompt\b|\bjailbreak (?:mode|prompt)|\bDAN mode",
        r"\bbypass (?:this|the|all|any|your) .{0,20}(?:filter|safety|restriction|rule|tool)",
        r"\bas an? (?:ai|language model|llm)\b",
        r"\bend of (?:tool )?(?:description|definition)\b|<\|[a-z_]{2,20}\|>|\bnew instructions?\s*:",
        r"\bthis tool will (?:fail|malfunction|not work) (?:unless|if)\b|\botherwise the \w+ (?:tool )?will fail\b",
    )


class SecretPlaces(Phrases):
    """Places where people keep secrets."""

    id = "VET-204"
    title = "places of secrets"
    mend = "check that the tool has business there; the sandbox shows it only granted paths"
    said = "the text names a place of secrets"
    patterns = (
        r"~/\.ssh\b|\.ssh/(?:id_|config|authorized|known)|\bid_(?:rsa|dsa|ecdsa|ed25519)\b",
        r"\.aws/credentials|\.config/gcloud|\.azure/|\.kube/config|\.docker/config\.json",
        r"/etc/(?:passwd|shadow|sudoers)|/proc/self/environ|/proc/\d+/environ",
        r"(?:^|[\s/'\"`])\.(?:env|netrc|npmrc|pypirc|pgpass|git-credentials|gnupg|bash_history|zsh_history)\b",
        r"\b(?:mcp|claude_desktop_config|mcp_config)\.json\b|\.cursor/mcp",
        r"\bwallet\.dat\b|\bkeychain-db\b|\blogin\.keychain\b|\bLocal State\b|\bCookies\.sqlite\b",
        r"\b169\.254\.169\.254\b|\bmetadata\.google\.internal\b",
        r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY",
    )


class SaysAttack(Phrases):
    """Tools that say of themselves that they attack."""

    id = "VET-211"
    title = "words of attack"
    mend = "read the tool's description as it stands"
    said = "the text speaks of an attack"
    patterns = (
        r"\bexfiltrat\w+|\bkeylog\w*|\breverse shell|\bbind shell|\bweb ?shell|\bshellcode\b|\brootkit\b",
        r"\b(?:steal|stolen|harvest)\w*\b.{0,20}\b(?:credential|password|token|secret|cookie|data|key)s?\b",
        r"\b(?:inject|deploy|install|execute|create|plant)\w*\b.{0,20}\b(?:malicious|malware|backdoor|payload)\b",
        r"\bprivilege escalation\b|\bprocess hollowing\b|\bdeserialization attack\b|\bcovert channel\b",
        (
            r"\b(?:bypass|evade|disable)\w*\b"
            r".{0,20}\b(?:antivirus|edr|amsi|detection|security hooks?|sandbox|authentication)\b"
        ),
    )


_WORDS: Final = re.compile(r"[A-Za-z0-9_.-]{2,127}[A-Za-z0-9_]")
_SEVERAL: Final = re.compile(r"[_.-]|[a-z][A-Z]")


class OtherTools:
    """Text that names tools of other servers: shadowing changes how those are used."""

    id = "VET-203"
    title = "mention of other servers' tools"
    severity: Severity = "inform"
    mend = "check what the text says about the other tool; a tool has no business describing another server's"

    def check(self, subject: Subject) -> Iterator[Finding]:
        """Yield mentions of other servers' tool names of more than one word; single words are everyday language."""
        owners = {
            name: server
            for server, names in subject.others.items()
            if server
            for name in names
            if _SEVERAL.search(name) and name != subject.name
        }
        own = set(subject.others.get("", ()))
        found = 0
        for text in texts(subject.definition):
            for word in _WORDS.findall(text.text[:MAX_READ_CHARS]) if text.role != "name" else ():
                if word in owners and word not in own and found < MAX_FINDINGS:
                    found += 1
                    server = ascii(owners[word])[1:-1]
                    yield subject.finding(self, text.place, f"the text names {shown(word)}, a tool of `{server}`")
