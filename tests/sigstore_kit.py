"""A Sigstore of the tests' own: authority, certificate log, transparency log; its bundles really verify."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as Key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

ISSUER_OID = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
SCT_OID = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SIGNED = START + dt.timedelta(days=30)


def new_key() -> Key:
    """Return a key on P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def spki(key: Key) -> bytes:
    """Return the public half in DER."""
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def sign(key: Key, data: bytes) -> bytes:
    """Return a signature."""
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


def b64(data: bytes) -> str:
    """Return base64."""
    return base64.b64encode(data).decode()


@dataclass
class Sigstore:
    """One instance of the services, with keys of its own."""

    authority: Key = field(default_factory=new_key)
    certificates: Key = field(default_factory=new_key)
    log: Key = field(default_factory=new_key)

    def __post_init__(self) -> None:
        """Make the authority's own certificate."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of tests")])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = self._builder(name, name, self.authority).add_extension(x509.BasicConstraints(True, None), True)
        own = x509.SubjectKeyIdentifier.from_public_key(self.authority.public_key())
        builder = builder.add_extension(usage, True).add_extension(own, False)
        self.root = builder.sign(self.authority, hashes.SHA256())

    def trusted_root(self) -> dict[str, Any]:
        """Return ``trusted_root.json``."""
        own = b64(self.root.public_bytes(serialization.Encoding.DER))
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [self._instance(self.log, "https://log.test")],
            "certificateAuthorities": [
                {
                    "subject": {"organization": "tests", "commonName": "authority of tests"},
                    "uri": "https://authority.test",
                    "certChain": {"certificates": [{"rawBytes": own}]},
                    "validFor": {"start": START.isoformat()},
                }
            ],
            "ctlogs": [self._instance(self.certificates, "https://certificates.test")],
            "timestampAuthorities": [],
        }

    def bundle(
        self, data: bytes, identity: str, issuer: str, at: dt.datetime = SIGNED, listed: bytes | None = None
    ) -> dict[str, Any]:
        """Return a bundle over some bytes, signed by who an issuer says is ``identity``.

        Args:
            data: what is signed.
            identity: e-mail address of the certificate.
            issuer: who vouches for it.
            at: time in the transparency log; certificates last ten minutes from ``SIGNED``.
            listed: what the transparency log is told instead of ``data``.
        """
        key = new_key()
        certificate = self._leaf(key, identity, issuer)
        signature = sign(key, data)
        entry = self._entry(certificate, signature, data if listed is None else listed, int(at.timestamp()))
        raw = certificate.public_bytes(serialization.Encoding.DER)
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"certificate": {"rawBytes": b64(raw)}, "tlogEntries": [entry]},
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": b64(hashlib.sha256(data).digest())},
                "signature": b64(signature),
            },
        }

    def _instance(self, key: Key, url: str) -> dict[str, Any]:
        return {
            "baseUrl": url,
            "hashAlgorithm": "SHA2_256",
            "publicKey": {
                "rawBytes": b64(spki(key)),
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                "validFor": {"start": START.isoformat()},
            },
            "logId": {"keyId": b64(hashlib.sha256(spki(key)).digest())},
        }

    @staticmethod
    def _builder(subject: x509.Name, issuer: x509.Name, key: Key) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(START)
        return builder.not_valid_after(START + dt.timedelta(days=3650))

    def _leaf(self, key: Key, identity: str, issuer: str) -> x509.Certificate:
        """Return a certificate with the stamp of the certificate log in it."""
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        serial = x509.random_serial_number()
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (usage, True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()), False),
            (x509.SubjectAlternativeName([x509.RFC822Name(identity)]), True),
            (x509.UnrecognizedExtension(ISSUER_OID, issuer.encode()), False),
        ]

        def made(more: Sequence[tuple[x509.ExtensionType, bool]]) -> x509.Certificate:
            builder = x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(self.root.subject)
            builder = builder.public_key(key.public_key()).serial_number(serial).not_valid_before(SIGNED)
            builder = builder.not_valid_after(SIGNED + dt.timedelta(minutes=10))
            for extension, critical in (*extensions, *more):
                builder = builder.add_extension(extension, critical)
            return builder.sign(self.authority, hashes.SHA256())

        stamp = self._stamp(made([]).tbs_certificate_bytes)
        return made([(x509.UnrecognizedExtension(SCT_OID, stamp), False)])

    def _stamp(self, tbs: bytes) -> bytes:
        """Return the list with the certificate log's stamp (RFC 6962 §3.2), as the extension holds it."""
        moment = int(SIGNED.timestamp() * 1000)
        entry = hashlib.sha256(spki(self.authority)).digest() + len(tbs).to_bytes(3, "big") + tbs
        signed = sign(self.certificates, struct.pack("!BBQH", 0, 0, moment, 1) + entry + struct.pack("!H", 0))
        log = hashlib.sha256(spki(self.certificates)).digest()
        stamp = struct.pack("!B32sQH", 0, log, moment, 0) + bytes([4, 3]) + struct.pack("!H", len(signed)) + signed
        listed = struct.pack("!HH", len(stamp) + 2, len(stamp)) + stamp
        return bytes([0x04, *_length(len(listed))]) + listed

    def _entry(self, certificate: x509.Certificate, signature: bytes, data: bytes, at: int) -> dict[str, Any]:
        """Return the entry of the transparency log, the only one of its tree."""
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        body = json.dumps(
            {
                "apiVersion": "0.0.1",
                "kind": "hashedrekord",
                "spec": {
                    "data": {"hash": {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}},
                    "signature": {"content": b64(signature), "publicKey": {"content": b64(pem)}},
                },
            },
            separators=(",", ":"),
            sort_keys=True,
        ).encode()
        log = hashlib.sha256(spki(self.log)).digest()
        root = hashlib.sha256(b"\x00" + body).digest()
        note = f"log.test\n1\n{b64(root)}\n"
        checkpoint = f"{note}\n— log.test {b64(log[:4] + sign(self.log, note.encode()))}\n"
        promise = {"body": b64(body), "integratedTime": at, "logID": log.hex(), "logIndex": 0}
        promised = sign(self.log, json.dumps(promise, separators=(",", ":"), sort_keys=True).encode())
        return {
            "logIndex": "0",
            "logId": {"keyId": b64(log)},
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
            "integratedTime": str(at),
            "inclusionPromise": {"signedEntryTimestamp": b64(promised)},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": b64(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": checkpoint},
            },
            "canonicalizedBody": b64(body),
        }


def _length(size: int) -> bytes:
    """Return a length in DER."""
    if size < 0x80:
        return bytes([size])
    raw = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(raw)]) + raw
