//! Settings: the table of them, what values they take and who has the last word; and first of all what
//! a capture leaves out.
//!
//! Pure: texts and names in, answers out. Every pattern here is about names, never about content, and
//! names are compared without case, so that `.ENV` is the secret that `.env` is. What git's ignore rules
//! leave out is the walk's business.

mod edit;
mod layers;
mod patterns;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod upkeep;
mod value;

pub use layers::{Configuration, Given, InForce, SettingChange, SettingsFile};
pub use patterns::{InvalidPattern, NamePatterns};
pub use table::{InWorkspace, SETTINGS, Setting};
pub use upkeep::{PruneRule, Upkeep};
pub use value::{Kind, Value};

use crate::hash::Digest;
use crate::limits;
use crate::path::RelPath;

/// Names of version-control data: never entered, never held, never touched by a restore, whether file
/// or directory. Not configurable. Compared without the case of ASCII letters, because on a file
/// system that folds case `.GIT` is the repository too.
const REPOSITORIES: [&str; 5] = [".git", ".hg", ".svn", ".jj", ".sl"];

/// Names of turnpoint's own, of which the same is true; but a workspace may lie below one.
const OWN: [&str; 2] = [".turnpoint", ".vak"];

/// Directories that hold what a build can make again.
const EXCLUDED_DIRECTORIES: [&str; 3] = ["target", "node_modules", "dist"];

/// Databases of the design this one grew from; large, and changed by each capture.
const EXCLUDED_FILES: [&str; 3] = ["store.db", "store.db-wal", "store.db-shm"];

/// Names that say that the content is a secret. A name is here only if it is hardly ever something
/// else: `kubeconfig`, `auth.json`, `*.tfvars`, `wp-config.php` and `*_rsa` are common names of
/// source files or directories and are not.
const SECRETS: &[&str] = &[
    // Environment files; the three templates are meant to be shared.
    ".env*",
    "!.env.example",
    "!.env.sample",
    "!.env.template",
    // Private keys and key stores; the public half may be kept.
    "*.pem",
    "*.key",
    "*.p8",
    "*.pk8",
    "*.p12",
    "*.pfx",
    "*.pkcs12",
    "*.ppk",
    "*.jks",
    "*.jceks",
    "*.keystore",
    "*.keytab",
    "*.kdbx",
    "*.ovpn",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "ssh_host_*_key",
    "secring.*",
    "!*.pub",
    ".ssh",
    ".gnupg",
    // Credentials of programs and services.
    "credentials.json",
    ".credentials.json",
    "application_default_credentials.json",
    "credentials.tfrc.json",
    "client_secret*.json",
    "*service-account*.json",
    "*service_account*.json",
    "*-firebase-adminsdk-*.json",
    "secrets.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
    ".npmrc",
    ".netrc",
    "_netrc",
    ".pypirc",
    ".git-credentials",
    ".gitcookies",
    ".htpasswd",
    ".pgpass",
    "pgpass.conf",
    ".my.cnf",
    ".mylogin.cnf",
    ".dockercfg",
    ".docker/config.json",
    "containers/auth.json",
    ".kube/config",
    "*.kubeconfig",
    "kubeconfig.json",
    "kubeconfig.yaml",
    "kubeconfig.yml",
    ".aws/credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".codex/auth.json",
    ".composer/auth.json",
    "gh/hosts.yml",
    ".m2/settings.xml",
    "settings-security.xml",
    ".s3cfg",
    ".boto",
    ".databrickscfg",
    ".oci/config",
    ".snowsql/config",
    ".terraformrc",
    ".vault-token",
    ".msmtprc",
    ".authinfo*",
    "sftp-config.json",
    ".vscode/sftp.json",
    // Terraform writes every secret it knows into its state, in the clear.
    "*.tfstate",
    "*.tfstate.*",
    // What was typed at a prompt: `.bash_history`, `.psql_history` and their kind.
    ".*_history",
];

/// Whether `name` is version-control data or turnpoint's own.
pub fn is_version_control(name: &[u8]) -> bool {
    // Asked for every name of a walk: most do not begin with a dot.
    name.first() == Some(&b'.') && (is_repository(name) || is_one_of(&OWN, name))
}

/// Whether `name` is version-control data, and not turnpoint's own.
pub(crate) fn is_repository(name: &[u8]) -> bool {
    is_one_of(&REPOSITORIES, name)
}

fn is_one_of(names: &[&str], name: &[u8]) -> bool {
    names.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// All settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// The directory of the store, as it was written.
    pub home: Option<String>,
    /// The session to add to where none is named.
    pub session: Option<String>,
    /// When to use colors.
    pub color: ColorChoice,
    /// What shows long output.
    pub pager: Option<String>,
    /// What a capture holds and what it leaves out.
    pub scope: ScopeSettings,
    /// What the store keeps, and when it cleans up.
    pub upkeep: Upkeep,
    /// What is brought along into the work tree of a run.
    pub extras: Extras,
}

/// What a run in a work tree of its own is to have of the checkout although git does not put it there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extras {
    /// It gets a copy of these.
    pub copied: Vec<RelPath>,
    /// It gets a symlink to these.
    pub linked: Vec<RelPath>,
}

/// When to use colors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColorChoice {
    /// Where a person looks.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What a capture holds and what it leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopeSettings {
    /// Content of a file larger than this is not held. Default: 8 MiB.
    pub file_limit_bytes: u64,
    /// Content beyond this sum, over all files of one checkpoint, is not held. Default: no limit.
    pub total_limit_bytes: Option<u64>,
    /// Whether other file systems mounted below the root are entered. Default: no.
    pub cross_mounts: bool,
    /// Whether what git's ignore files name is left out. Default: yes.
    pub obeys_ignore_files: bool,
    /// Directories that are not entered unless git tracks something in them. Default: `target`,
    /// `node_modules`, `dist`.
    pub excluded_directories: NamePatterns,
    /// Files whose content is not held unless git tracks them. Default: `store.db` and its two
    /// companions.
    pub excluded_files: NamePatterns,
    /// Files and directories whose content is never held, tracked or not. Default: environment
    /// files, private keys, credentials.
    pub secrets: NamePatterns,
}

impl Default for ScopeSettings {
    fn default() -> Self {
        Self {
            file_limit_bytes: limits::FILE_BYTES_DEFAULT,
            total_limit_bytes: None,
            cross_mounts: false,
            obeys_ignore_files: true,
            excluded_directories: NamePatterns::built_in(&EXCLUDED_DIRECTORIES),
            excluded_files: NamePatterns::built_in(&EXCLUDED_FILES),
            secrets: NamePatterns::built_in(SECRETS),
        }
    }
}

impl ScopeSettings {
    /// Leaves out more, or less where a pattern begins with `!`. One that ends with `/` is about
    /// directories alone. What is no pattern is passed over.
    pub fn exclude(&mut self, patterns: &[String]) {
        for pattern in patterns {
            let name = pattern.strip_suffix('/').unwrap_or(pattern);
            self.excluded_directories.add(name);
            if name.len() == pattern.len() {
                self.excluded_files.add(name);
            }
        }
    }

    /// What is held of something that is about to be deleted: no limit counts, and no exclusion but the usual
    /// ones, less those that are taken back here. What a secret is stays as it is here.
    pub(crate) fn before_deletion(&self) -> Self {
        let mut scope = Self {
            file_limit_bytes: u64::MAX,
            obeys_ignore_files: self.obeys_ignore_files,
            secrets: self.secrets.clone(),
            ..Self::default()
        };
        let pairs = [
            (&mut scope.excluded_directories, &self.excluded_directories),
            (&mut scope.excluded_files, &self.excluded_files),
        ];
        for (usual, chosen) in pairs {
            for exception in chosen.texts().iter().filter(|text| text.starts_with('!')) {
                usual.add(exception);
            }
        }
        scope
    }

    /// Takes more names for secrets, or fewer where a pattern begins with `!`. What is no pattern is
    /// passed over.
    pub fn add_secrets(&mut self, patterns: &[String]) {
        for pattern in patterns {
            self.secrets.add(pattern);
        }
    }

    /// Whether the file or directory `name`, in a directory named `parent`, holds a secret, by its
    /// name.
    pub fn is_secret(&self, parent: &[u8], name: &[u8]) -> bool {
        self.secrets.matches(parent, name)
    }

    /// Whether a directory of that name is not entered unless git tracks something in it.
    pub fn excludes_directory(&self, parent: &[u8], name: &[u8]) -> bool {
        self.excluded_directories.matches(parent, name)
    }

    /// Whether the content of a file of that name is not held unless git tracks it.
    pub fn excludes_file(&self, parent: &[u8], name: &[u8]) -> bool {
        self.excluded_files.matches(parent, name)
    }

    /// A checksum over everything here: two settings with the same one leave out the same.
    pub fn digest(&self) -> Digest {
        let Self {
            file_limit_bytes,
            total_limit_bytes,
            cross_mounts,
            obeys_ignore_files,
            excluded_directories,
            excluded_files,
            secrets,
        } = self;
        // NUL ends a pattern and cannot be in one, so that no two lists run into the same text.
        let mut text = format!(
            "{file_limit_bytes} {total_limit_bytes:?} {cross_mounts} {obeys_ignore_files}\0"
        );
        for patterns in [excluded_directories, excluded_files, secrets] {
            for pattern in patterns.texts() {
                text.push_str(pattern);
                text.push('\0');
            }
            text.push('\0');
        }
        Digest::of(text.as_bytes())
    }
}
