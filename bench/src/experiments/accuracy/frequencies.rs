//! The frequencies that all accuracy experiments compare.

pub const SAMPFREQS: [u32; 3] = [16, 128, 1024];
