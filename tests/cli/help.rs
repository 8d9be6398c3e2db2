//! The help texts, as they stand in `help/*.trycmd`. `TRYCMD=overwrite` writes them anew.

use crate::support::program::Program;

#[test]
fn help_reads_as_written_down() {
    trycmd::TestCases::new().case("tests/cli/help/*.trycmd");
}

#[test]
fn every_command_has_a_sentence_and_an_example() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let help = program.run(["--help"]).ok().stdout;
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| !["help", "checkpoints"].contains(name))
        .collect();
    assert_eq!(commands.len(), 24, "{help}");
    for command in commands {
        let help = program.run([command, "--help"]).ok().stdout;
        assert!(help.starts_with(|first: char| first.is_ascii_uppercase()), "{help}");
        assert!(help.contains(&format!("\n  turnpoint {command}")), "{help}");
        let short = program.run([command, "-h"]).ok().stdout;
        assert!(short.lines().count() <= 45, "the short help of {command} is long\n{short}");
    }
}

#[test]
fn the_version_is_that_of_the_crate() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let expected = format!("turnpoint {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(program.run(["--version"]).ok().stdout, expected);
}
