"""A real OpenID provider: django-oauth-toolkit with three clients and three users.

`python -m tests.access.oidc_provider FOLDER` prints its address when it listens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

CLIENT, SECRET, REDIRECT = "artimon", "the secret of the client", "https://artimon.example.org/login/oidc/callback"
GRAFANA, OTHER = "grafana", "a-game"
PASSWORD = "a password at the provider"
GROUPS = {"olga": ["staff", "ops"], "guest": ["guests"], "greg": []}


def configure(folder: Path, issuer: str) -> None:
    """Set Django up: in-memory sessions, a database file, the provider with a key of its own."""
    import django  # type: ignore[import-untyped]
    from django.conf import settings  # type: ignore[import-untyped]

    key = folder / "rsa.pem"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    settings.configure(
        SECRET_KEY="of a test",
        ALLOWED_HOSTS=["127.0.0.1"],
        ROOT_URLCONF=__name__,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "provider.sqlite")}},
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "oauth2_provider",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {"loaders": [("django.template.loaders.locmem.Loader", {"registration/login.html": FORM})]},
            }
        ],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        USE_TZ=True,
        OAUTH2_PROVIDER={
            "OIDC_ENABLED": True,
            "OIDC_RSA_PRIVATE_KEY": key.read_text(),
            "OIDC_ISS_ENDPOINT": issuer,
            "PKCE_REQUIRED": True,
            "SCOPES": {"openid": "OpenID", "profile": "Profile", "email": "Mail"},
            "OAUTH2_VALIDATOR_CLASS": f"{__name__}.validator_class",
        },
    )
    django.setup()


FORM = '<form method="post">{% csrf_token %}{{ form.as_p }}<input type="hidden" name="next" value="{{ next }}"></form>'


def validator_class(*given: Any, **more: Any) -> Any:
    """Make the validator, which adds name and groups to ID tokens; a function, because Django is set up before."""
    from oauth2_provider.oauth2_validators import OAuth2Validator  # type: ignore[import-untyped]

    class Validator(OAuth2Validator):  # type: ignore[misc]
        oidc_claim_scope = None

        def get_additional_claims(self, request: Any) -> dict[str, Any]:
            name = request.user.username
            return {"preferred_username": name, "groups": GROUPS[name]}

    return Validator(*given, **more)


def fill() -> None:
    """Create tables, users and clients."""
    from django.contrib.auth.models import User  # type: ignore[import-untyped]
    from django.core.management import call_command  # type: ignore[import-untyped]
    from oauth2_provider.models import Application  # type: ignore[import-untyped]

    call_command("migrate", verbosity=0)
    for name in GROUPS:
        User.objects.create_user(name, password=PASSWORD)
    for client in (CLIENT, GRAFANA, OTHER):
        Application.objects.create(
            client_id=client,
            client_secret=SECRET,
            client_type="confidential",
            authorization_grant_type="authorization-code",
            redirect_uris=REDIRECT,
            algorithm="RS256",
            skip_authorization=True,
        )


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def main(folder: Path) -> None:
    os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"  # loopback
    server = WSGIServer(("127.0.0.1", 0), Quiet)
    issuer = f"http://127.0.0.1:{server.server_port}/o"
    configure(folder, issuer)
    fill()
    from django.contrib.auth.views import LoginView  # type: ignore[import-untyped]
    from django.core.wsgi import get_wsgi_application  # type: ignore[import-untyped]
    from django.urls import include, path  # type: ignore[import-untyped]

    globals()["urlpatterns"] = [
        path("accounts/login/", LoginView.as_view()),
        path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
    ]
    server.set_app(get_wsgi_application())
    print(issuer, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.modules["tests.access.oidc_provider"] = sys.modules["__main__"]
    main(Path(sys.argv[1]))
