"""E-mail, through the operator's SMTP server: all mails about an incident are one conversation.

The mail server is a setting of the installation, not of a destination: nobody makes the console speak SMTP to a place of
their own choice.
"""

from __future__ import annotations

import smtplib
from email.mime.image import MIMEImage
from email.utils import parseaddr
from html import escape
from typing import Final

from django.core.exceptions import ImproperlyConfigured
from django.core.mail import EmailMultiAlternatives, get_connection

from console.tickets.message import (
    PICTURES_SETTING,
    Again,
    Config,
    Kind,
    Message,
    Post,
    Refused,
    Sent,
    Setting,
    check_pictures,
)
from console.tickets.wording import lines_of, what_happened

SUBJECT_CHARS_MAX: Final = 200
TO_MAX: Final = 50
DOMAIN: Final = "diogenes.invalid"


def mail_of(message: Message, to: list[str]) -> EmailMultiAlternatives:
    """Subject, text and the headers that keep it together with the earlier ones."""
    subject = " ".join(("A test of Diogenes" if message.is_test else message.title).split())[:SUBJECT_CHARS_MAX]
    text = "\n\n".join([what_happened(message), *lines_of(message)])
    root = f"<{message.ticket}@{DOMAIN}>"
    own = root if message.verb == "open" else f"<{message.delivery}@{DOMAIN}>"
    headers = {"Message-ID": own, "Auto-Submitted": "auto-generated"}
    if own != root:
        headers |= {"In-Reply-To": root, "References": root}
    return _with_pictures(message, EmailMultiAlternatives(subject, text, to=to, headers=headers))


def _with_pictures(message: Message, mail: EmailMultiAlternatives) -> EmailMultiAlternatives:
    """The same text with the pictures in it; who reads no HTML finds them as files."""
    if not message.pictures:
        return mail
    shown = "".join(
        f'<p><img src="cid:{file}" alt="{escape(file)}" style="max-width:100%"></p>' for file, _ in message.pictures
    )
    mail.attach_alternative(f"<pre>{escape(str(mail.body))}</pre>{shown}", "text/html")
    for file, body in message.pictures:
        image = MIMEImage(body, "png")
        image.add_header("Content-ID", f"<{file}>")
        image.add_header("Content-Disposition", "inline", filename=file)
        mail.attach(image)
    return mail


def addresses(config: Config) -> list[str]:
    return [one.strip() for one in config.settings.get("to", "").split(",") if one.strip()]


def send(message: Message, config: Config, post: Post) -> Sent:
    mail = mail_of(message, addresses(config))
    try:
        mail.connection = get_connection()
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        if all(400 <= code < 500 for code, _ in error.recipients.values()):
            raise Again("the mail server took none of the addresses for now") from error
        raise Refused("the mail server refuses the addresses") from error
    except smtplib.SMTPResponseException as error:
        said = f"the mail server answered {error.smtp_code}"
        raise (Again if 400 <= error.smtp_code < 500 else Refused)(said) from error
    except (smtplib.SMTPException, OSError) as error:
        raise Again(f"the mail server cannot be reached ({type(error).__name__})") from error
    except ImproperlyConfigured as error:
        raise Refused(str(error)) from error
    return Sent(said="handed to the mail server")


def check(config: Config) -> None:
    check_pictures(config)
    to = addresses(config)
    if not 0 < len(to) <= TO_MAX:
        raise Refused(f"1 to {TO_MAX} addresses")
    for one in to:
        if parseaddr(one)[1] != one or one.count("@") != 1 or any(letter.isspace() for letter in one):
            raise Refused(f"{one} is no e-mail address")


KIND: Final = Kind(
    "email",
    "E-mail",
    (Setting("to", "Addresses, separated by commas"), PICTURES_SETTING),
    send,
    check,
    takes_pictures=True,
)
