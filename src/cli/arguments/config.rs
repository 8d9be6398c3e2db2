//! The arguments of `turnpoint config`.

use clap::{Args, Subcommand};

/// Show the settings
///
/// A setting is given in the environment, in the user's file `turnpoint/config.toml` in the XDG
/// configuration directory, or in `.turnpoint.toml` at the root of the workspace; the first of these
/// has the last word, and the last may only make less be captured. `turnpoint config list` shows all
/// settings; docs/configuration.md says what they are for.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint config list --origin\n  \
                        turnpoint config get capture.file_limit\n  \
                        TURNPOINT_CAPTURE_FILE_LIMIT=64MiB turnpoint capture\n\n\
                        A file of settings:\n  \
                        [capture]\n  \
                        file_limit = \"32MiB\"\n  \
                        exclude = [\"build/\", \"*.iso\"]\n\n  \
                        [retention]\n  \
                        keep = 50")]
pub(crate) struct ConfigArguments {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// All settings with the values that count here
    List {
        /// Where each value stands
        #[arg(long)]
        origin: bool,
    },
    /// The value of one setting that counts here
    Get {
        /// Its name, as in `capture.file_limit`
        #[arg(value_name = "NAME")]
        name: String,
    },
}
