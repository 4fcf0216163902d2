"""aiokafka client configuration, from our settings. Services without aiokafka do not import it."""

from libs.config.connections import KafkaSettings, SaslMechanism
from libs.kafka.clients import tls_context
from libs.kafka.oauth import TokenProvider


def aiokafka_config(settings: KafkaSettings) -> dict[str, object]:
    """Connection part of an aiokafka client's arguments."""
    config: dict[str, object] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "security_protocol": settings.security_protocol.value,
    }
    if context := tls_context(settings):
        config["ssl_context"] = context
    if settings.oauth is not None:
        config["sasl_mechanism"] = SaslMechanism.OAUTHBEARER.value
        config["sasl_oauth_token_provider"] = TokenProvider(settings.oauth)
    elif settings.sasl_mechanism is not None:
        config["sasl_mechanism"] = settings.sasl_mechanism.value
        config["sasl_plain_username"] = settings.sasl_username or ""
        config["sasl_plain_password"] = settings.sasl_password.reveal() if settings.sasl_password else ""
    return config
