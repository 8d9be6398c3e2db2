//! The program `turnpoint`: see `turnpoint --help`, or `docs/cli.md`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
