//! The JSON of bytes that are usually text: a string where they are UTF-8, base64 in a second field
//! where they are not.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Splits `bytes` into the two fields: text, or base64.
pub(crate) fn to_fields(bytes: &[u8]) -> (Option<Cow<'_, str>>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(Cow::Borrowed(text)), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

/// The reverse of [`to_fields`]. The base64 form is only accepted for bytes that are not UTF-8, so
/// that every value has one form.
pub(crate) fn from_fields(
    text: Option<Cow<'_, str>>,
    base64: Option<&str>,
) -> Result<Vec<u8>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_owned().into_bytes()),
        (None, Some(base64)) => {
            let bytes = STANDARD.decode(base64).map_err(|error| format!("bad base64: {error}"))?;
            match std::str::from_utf8(&bytes) {
                Ok(_) => Err("base64 is used for bytes that are text".to_owned()),
                Err(_) => Ok(bytes),
            }
        }
        (None, None) => Err("the text is missing".to_owned()),
        (Some(_), Some(_)) => Err("the text is given twice".to_owned()),
    }
}
