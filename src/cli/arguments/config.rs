//! The arguments of `turnpoint config`.

use clap::{Args, Subcommand};

use crate::cli::settings::UserFile;

/// Show the settings, and change them
///
/// A setting is given in the environment, in the user's file `turnpoint/config.toml` in the XDG
/// configuration directory, or in `.turnpoint.toml` at the root of the workspace; the first of these
/// has the last word, and the last may only make less be captured. `turnpoint config list --long` shows all
/// settings and says what they are for.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint config list --origin\n  \
                        turnpoint config list --long retention\n  \
                        turnpoint config get capture.file_limit\n  \
                        turnpoint config set retention.keep 50\n  \
                        turnpoint config set --local capture.exclude '[\"coverage/\", \"*.iso\"]'\n  \
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

impl ConfigArguments {
    /// What becomes of the user's file.
    pub(crate) const fn user_file(&self) -> UserFile {
        match self.command {
            ConfigCommand::Set { local: false, .. } => UserFile::Made,
            ConfigCommand::Unset { local: false, .. } => UserFile::Changed,
            _ => UserFile::Obeyed,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// All settings with the values that count here
    List {
        /// Only the setting of this name, or those of a section such as `capture`
        #[arg(value_name = "SETTING")]
        name: Option<String>,
        /// What each is for, what values it takes, and where its value stands
        #[arg(short, long)]
        long: bool,
        /// Where each value stands
        #[arg(long, conflicts_with = "long")]
        origin: bool,
    },
    /// The value of one setting that counts here
    Get {
        /// Its name, as in `capture.file_limit`
        #[arg(value_name = "SETTING")]
        name: String,
    },
    /// Give a setting a value in a settings file
    ///
    /// In the user's file, or with --local in that of the workspace. Comments and order of the file stay,
    /// and it is made where it is missing. Nothing is written unless all that would then stand in it can
    /// be obeyed.
    Set {
        /// In `.turnpoint.toml` of the workspace, which may only make less be captured
        #[arg(long)]
        local: bool,
        /// Its name, as in `capture.file_limit`
        #[arg(value_name = "SETTING")]
        name: String,
        /// Its value: a word, a number, a size such as 64MiB, a time such as 7d, or a list as TOML has it
        #[arg(value_name = "VALUE", allow_hyphen_values = true)]
        value: String,
    },
    /// Take a setting out of a settings file
    ///
    /// Out of the user's file, or with --local out of that of the workspace.
    Unset {
        /// Out of `.turnpoint.toml` of the workspace
        #[arg(long)]
        local: bool,
        /// Its name, as in `capture.file_limit`
        #[arg(value_name = "SETTING")]
        name: String,
    },
}
