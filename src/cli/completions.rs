//! `turnpoint completions`.

use serde::Serialize;

use crate::cli::arguments::{CompletionsArguments, Shell};
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;

// Each asks what can be typed next, and falls back to the names of files where that is nothing. What it
// asks is the program of that name on the PATH, and not what was typed: a press of Tab runs nothing else.

const BASH: &str = r#"_turnpoint() {
    mapfile -t COMPREPLY < <(turnpoint complete --shell bash --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/:] ]]; then
        compopt -o nospace
    fi
}
complete -o default -o nosort -F _turnpoint turnpoint
"#;

const ZSH: &str = r#"#compdef turnpoint
_turnpoint() {
    local -a values texts open
    local value text
    while IFS=$'\t' read -r value text; do
        values+=("$value")
        texts+=("$value${text:+  ($text)}")
    done < <(turnpoint complete --shell zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    if (( $#values == 0 )); then
        _files
        return
    fi
    if (( $#values == 1 )) && [[ $values[1] == *[/:] ]]; then
        open=(-S '')
    fi
    compadd -V turnpoint -l -d texts $open -a values
}
if [[ $funcstack[1] == _turnpoint ]]; then
    _turnpoint "$@"
else
    compdef _turnpoint turnpoint
fi
"#;

const FISH: &str = r"function __turnpoint_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (turnpoint complete --shell fish -- $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c turnpoint -f -k -a '(__turnpoint_complete)'
";

#[derive(Serialize)]
struct CompletionsDocument {
    script: &'static str,
}

/// Prints the script of a shell.
pub(crate) fn run(arguments: &CompletionsArguments, context: &mut Context) -> Outcome<Exit> {
    let script = match arguments.shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    };
    if context.is_json() {
        context.document(&CompletionsDocument { script })?;
    } else {
        context.printer.bytes().write_all(script.as_bytes())?;
    }
    Ok(Exit::Done)
}
