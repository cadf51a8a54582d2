// SPDX-License-Identifier: MPL-2.0
//! What encrypts RTP (RFC 3711, RFC 7714).

use std::fmt;

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use ring::aead::{self, AES_128_GCM, AES_256_GCM, LessSafeKey, Nonce, UnboundKey};
use str0m::crypto::{
    AeadAes128GcmCipher, AeadAes256GcmCipher, Aes128CmSha1_80Cipher, CryptoError, SrtpProvider, SupportedAeadAes128Gcm,
    SupportedAeadAes256Gcm, SupportedAes128CmSha1_80,
};

const BLOCK: usize = 16;
/// Blocks that are encrypted together, which is several times as fast.
const AT_ONCE: usize = 8;
/// What a block is filled with that has nothing in it.
const PADDING: [u8; BLOCK] = [BLOCK as u8; BLOCK];

#[derive(Debug)]
pub struct RtpCiphers;

impl SrtpProvider for RtpCiphers {
    fn aes_128_cm_sha1_80(&self) -> &'static dyn SupportedAes128CmSha1_80 {
        &RtpCiphers
    }

    fn aead_aes_128_gcm(&self) -> &'static dyn SupportedAeadAes128Gcm {
        &RtpCiphers
    }

    fn aead_aes_256_gcm(&self) -> &'static dyn SupportedAeadAes256Gcm {
        &RtpCiphers
    }

    fn srtp_aes_128_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        encrypt_block(&Aes128::new_from_slice(key).expect("the key has 16 bytes"), input, output);
    }

    fn srtp_aes_256_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        encrypt_block(&Aes256::new_from_slice(key).expect("the key has 32 bytes"), input, output);
    }
}

impl SupportedAes128CmSha1_80 for RtpCiphers {
    fn create_cipher(&self, key: [u8; 16], _encrypt: bool) -> Box<dyn Aes128CmSha1_80Cipher> {
        Box::new(CounterCipher(Aes128::new(&key.into())))
    }
}

impl SupportedAeadAes128Gcm for RtpCiphers {
    fn create_cipher(&self, key: [u8; 16], _encrypt: bool) -> Box<dyn AeadAes128GcmCipher> {
        Box::new(GcmCipher::new(&AES_128_GCM, &key))
    }
}

impl SupportedAeadAes256Gcm for RtpCiphers {
    fn create_cipher(&self, key: [u8; 32], _encrypt: bool) -> Box<dyn AeadAes256GcmCipher> {
        Box::new(GcmCipher::new(&AES_256_GCM, &key))
    }
}

/// A block, and the padding that follows a text of one whole block.
fn encrypt_block<C>(cipher: &C, input: &[u8], output: &mut [u8])
where
    C: BlockCipherEncrypt<BlockSize = aes::cipher::consts::U16>,
{
    for (from, to) in [input, &PADDING].into_iter().zip(output.chunks_exact_mut(BLOCK)) {
        let mut block: aes::Block = <[u8; BLOCK]>::try_from(from).expect("the input is one block").into();
        cipher.encrypt_block(&mut block);
        to.copy_from_slice(&block);
    }
}

/// AES in counter mode.
struct CounterCipher(Aes128);

impl fmt::Debug for CounterCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CounterCipher")
    }
}

impl CounterCipher {
    fn apply(&self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let room = output.get_mut(..input.len());
        let output = room.ok_or_else(|| CryptoError::Other("there is no room for a packet".into()))?;
        let mut counter = u128::from_be_bytes(*iv);
        let blocks = input.chunks(AT_ONCE * BLOCK).zip(output.chunks_mut(AT_ONCE * BLOCK));
        for (from, to) in blocks {
            let mut stream: [aes::Block; AT_ONCE] =
                std::array::from_fn(|number| counter.wrapping_add(number as u128).to_be_bytes().into());
            self.0.encrypt_blocks(&mut stream[..from.len().div_ceil(BLOCK)]);
            counter = counter.wrapping_add(AT_ONCE as u128);
            let stream = stream.iter().flatten();
            to.iter_mut().zip(from).zip(stream).for_each(|((to, from), key)| *to = from ^ key);
        }
        Ok(())
    }
}

impl Aes128CmSha1_80Cipher for CounterCipher {
    fn encrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.apply(iv, input, output)
    }

    fn decrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.apply(iv, input, output)
    }
}

struct GcmCipher(LessSafeKey);

impl fmt::Debug for GcmCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GcmCipher")
    }
}

fn refused(_: impl Sized) -> CryptoError {
    CryptoError::Other("a packet cannot be encrypted, or is not what was sent".into())
}

impl GcmCipher {
    fn new(algorithm: &'static aead::Algorithm, key: &[u8]) -> Self {
        GcmCipher(LessSafeKey::new(UnboundKey::new(algorithm, key).expect("the key is as long as the algorithm's")))
    }

    fn seal(&self, iv: &[u8; 12], also: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        let (text, rest) = output.split_at_mut_checked(input.len()).ok_or_else(|| refused(()))?;
        text.copy_from_slice(input);
        let nonce = Nonce::assume_unique_for_key(*iv);
        let tag = self.0.seal_in_place_separate_tag(nonce, aead::Aad::from(also), text).map_err(refused)?;
        let room = rest.get_mut(..tag.as_ref().len()).ok_or_else(|| refused(()))?;
        room.copy_from_slice(tag.as_ref());
        Ok(())
    }

    fn open(&self, iv: &[u8; 12], also: &[&[u8]], input: &[u8], output: &mut [u8]) -> Result<usize, CryptoError> {
        let mut text = input.to_vec();
        let nonce = Nonce::assume_unique_for_key(*iv);
        let text = self.0.open_in_place(nonce, aead::Aad::from(also.concat()), &mut text).map_err(refused)?;
        output.get_mut(..text.len()).ok_or_else(|| refused(()))?.copy_from_slice(text);
        Ok(text.len())
    }
}

impl AeadAes128GcmCipher for GcmCipher {
    fn encrypt(&mut self, iv: &[u8; 12], aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.seal(iv, aad, input, output)
    }

    fn decrypt(
        &mut self,
        iv: &[u8; 12],
        aads: &[&[u8]],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CryptoError> {
        self.open(iv, aads, input, output)
    }
}

impl AeadAes256GcmCipher for GcmCipher {
    fn encrypt(&mut self, iv: &[u8; 12], aad: &[u8], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.seal(iv, aad, input, output)
    }

    fn decrypt(
        &mut self,
        iv: &[u8; 12],
        aads: &[&[u8]],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, CryptoError> {
        self.open(iv, aads, input, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    /// The key stream of RFC 3711, appendix B.2, over more blocks than are encrypted together.
    #[test]
    fn the_key_stream_is_that_of_the_standard() {
        let key: [u8; 16] = bytes("2B7E151628AED2A6ABF7158809CF4F3C").try_into().unwrap();
        let iv: [u8; 16] = bytes("F0F1F2F3F4F5F6F7F8F9FAFBFCFD0000").try_into().unwrap();
        let mut cipher = SupportedAes128CmSha1_80::create_cipher(&RtpCiphers, key, true);
        let mut stream = vec![0; 0xff02 * BLOCK + 5];
        cipher.encrypt(&iv, &vec![0; stream.len()], &mut stream).unwrap();
        assert_eq!(stream[..16], bytes("E03EAD0935C95E80E166B16DD92B4EB4"));
        assert_eq!(stream[16..32], bytes("D23513162B02D0F72A43A2FE4A5F97AB"));
        assert_eq!(stream[32..48], bytes("41E95B3BB0A2E8DD477901E4FCA894C0"));
        assert_eq!(stream[0xfeff * BLOCK..][..16], bytes("EC8CDF7398607CB0F2D21675EA9EA1E4"));
        assert_eq!(stream[0xff00 * BLOCK..][..16], bytes("362B7C3C6773516318A077D7FC5073AE"));
        assert_eq!(stream[0xff01 * BLOCK..][..16], bytes("6A2CC3787889374FBEB4C81B17BA6C44"));
        let text = stream.clone();
        cipher.decrypt(&iv, &text, &mut stream).unwrap();
        assert!(stream.iter().all(|byte| *byte == 0));
        assert!(cipher.encrypt(&iv, &text, &mut stream[1..]).is_err());
    }

    /// The session keys of RFC 3711, appendix B.3, are such rounds.
    #[test]
    fn a_round_is_that_of_the_standard() {
        let key = bytes("E1F97A0D3E018BE0D64FA32C06DE4139");
        let mut output = [0; 32];
        RtpCiphers.srtp_aes_128_ecb_round(&key, &bytes("0EC675AD498AFEEBB6960B3AABE60000"), &mut output);
        assert_eq!(output[..16], bytes("C61E7A93744F39EE10734AFE3FF7A087"));
        // FIPS 197, appendix C.3.
        let key = bytes("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
        RtpCiphers.srtp_aes_256_ecb_round(&key, &bytes("00112233445566778899aabbccddeeff"), &mut output);
        assert_eq!(output[..16], bytes("8ea2b7ca516745bfeafc49904b496089"));
    }

    #[test]
    fn what_was_changed_on_the_way_is_refused() {
        let mut cipher = SupportedAeadAes128Gcm::create_cipher(&RtpCiphers, [7; 16], true);
        let (iv, text) = ([1; 12], b"a frame");
        let mut sealed = vec![0; text.len() + 16];
        cipher.encrypt(&iv, b"the header", text, &mut sealed).unwrap();
        let mut opened = vec![0; text.len()];
        assert_eq!(cipher.decrypt(&iv, &[b"the ", b"header"], &sealed, &mut opened).unwrap(), text.len());
        assert_eq!(opened, text);
        assert!(cipher.decrypt(&iv, &[b"another"], &sealed, &mut opened).is_err());
        assert!(cipher.decrypt(&iv, &[b"the header"], &sealed[1..], &mut opened).is_err());
        assert!(cipher.decrypt(&iv, &[b"the header"], &[], &mut opened).is_err());
        assert!(cipher.encrypt(&iv, b"the header", text, &mut opened).is_err(), "there is no room");
    }
}
