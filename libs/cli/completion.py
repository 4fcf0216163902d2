"""``headwater completion``: the script by which a shell completes commands and options."""

import click
from click.shell_completion import get_completion_class

from libs.cli.answer import answer, json_option
from libs.cli.terminal import echo_lines

_VARIABLE = "_HEADWATER_COMPLETE"
"""By which click's own script asks the command for words (click documentation, "Shell Completion")."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script by which SHELL completes commands and options.

    \b
    Examples:
      eval "$(headwater completion bash)"
      headwater completion zsh > ~/.zfunc/_headwater
      headwater completion fish > ~/.config/fish/completions/headwater.fish
    """
    script_of = get_completion_class(shell)
    assert script_of is not None, "click knows every shell of the choice"
    script = script_of(context.find_root().command, {}, "headwater", _VARIABLE).source()
    echo_lines(script)
    answer({"shell": shell, "script": script})
