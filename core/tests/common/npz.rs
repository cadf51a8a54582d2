// SPDX-License-Identifier: MPL-2.0
//! Archives as numpy.savez writes them.

/// Members that are stored as they are. Before each there are fields of 64 bits, which nobody needs, and in the directory there are none.
pub fn npz(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::<u8>::new(), Vec::<u8>::new());
    for (name, bytes) in members {
        let flags: u16 = if name.is_ascii() { 0 } else { 1 << 11 };
        let (start, size, length) = (file.len() as u32, bytes.len() as u32, name.len() as u16);
        // Neither compressed nor of a certain time.
        let common = [flags.to_le_bytes(), [0; 2], [0; 2], [0x21, 0]].concat();
        let (crc, length) = (crc32(bytes).to_le_bytes(), length.to_le_bytes());
        file.extend([&b"PK\x03\x04\x2d\0"[..], &common[..], &crc, &[0xff; 8], &length, &[20, 0]].concat());
        file.extend([name.as_bytes(), &[1, 0, 16, 0]].concat());
        file.extend([u64::from(size); 2].iter().flat_map(|size| size.to_le_bytes()));
        file.extend_from_slice(bytes);
        directory.extend([&b"PK\x01\x02\x2d\x03\x2d\0"[..], &common[..], &crc].concat());
        directory.extend([size; 2].iter().flat_map(|size| size.to_le_bytes()));
        directory.extend([&length[..], &[0; 12], &start.to_le_bytes(), name.as_bytes()].concat());
    }
    let (count, start, size) = (members.len() as u16, file.len() as u32, directory.len() as u32);
    let count = count.to_le_bytes();
    let end = [&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &size.to_le_bytes(), &start.to_le_bytes(), &[0; 2]].concat();
    [file, directory, end].concat()
}

/// The checksum of zip, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0xedb8_8320 };
    !bytes.iter().fold(!0, |crc: u32, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}
