//! The parts of the file that are the watchdog's, and the user that the process becomes.

use super::super::broker::Charge;
use super::rules::rules;
use super::written::Written;
use super::{GatewayConfig, GatewayConfigError, Source};
use std::path::{Path, PathBuf};

impl GatewayConfig {
    /// The rules and the congestion control of a configuration. Names of hosts in it are not looked up, which can take long.
    ///
    /// # Errors
    /// The file cannot be read, or makes no rules.
    pub(in crate::gateway) fn charge(source: &Source) -> Result<Charge, GatewayConfigError> {
        let written = source.read()?;
        let rules =
            rules(&written).map_err(|(field, problem)| Self::fault(&source.path, &field, &problem))?;
        Ok(Charge { port: written.port, rules, congestion: written.congestion })
    }

    /// The same of this configuration.
    pub(in crate::gateway) fn own_charge(&self) -> Charge {
        let congestion = self.written.congestion.clone();
        Charge { port: self.written.port, rules: self.rules.clone(), congestion }
    }

    /// The error of a field of a file.
    pub(in crate::gateway) fn fault(path: &Path, field: &str, problem: &str) -> GatewayConfigError {
        GatewayConfigError::Value {
            path: path.to_owned(),
            field: field.to_owned(),
            problem: problem.to_owned(),
        }
    }

    /// Reads and checks the file anew, as the user that this process is now.
    ///
    /// # Errors
    /// As [`GatewayConfig::load`].
    pub(in crate::gateway) fn again(&self) -> Result<Self, GatewayConfigError> {
        Self::load(&self.source)
    }

    /// The files that are read again when the operator has changed them.
    pub(in crate::gateway) fn files(&self) -> Vec<&Path> {
        let Written { key, roster, end_key, .. } = &self.written;
        let named = [key, roster, end_key].into_iter().flatten();
        std::iter::once(&self.source.path).chain(named).map(PathBuf::as_path).collect()
    }

    /// The user that the process becomes if root starts it.
    pub(in crate::gateway) fn user(&self) -> Option<&str> {
        self.written.user.as_deref()
    }

    /// Whether the file names a user.
    pub fn has_user(&self) -> bool {
        self.written.user.is_some()
    }
}
