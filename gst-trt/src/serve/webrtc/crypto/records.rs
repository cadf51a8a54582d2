// SPDX-License-Identifier: MPL-2.0
//! The one suite that all browsers have, AES with 128 bits in GCM, in both versions of DTLS.

use std::fmt;

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use dimpl::crypto::{
    Aad, Buf, Cipher, Dtls12CipherSuite, Dtls13CipherSuite, HashAlgorithm, Nonce, SupportedDtls12CipherSuite,
    SupportedDtls13CipherSuite, TmpBuf,
};
use dimpl::{CryptoError, CryptoOperation};
use ring::aead::{self, AES_128_GCM, LessSafeKey, UnboundKey};

const TAG: usize = 16;
const KEY: usize = 16;

#[derive(Debug)]
pub struct Aes128Gcm;

struct RecordCipher(LessSafeKey);

impl fmt::Debug for RecordCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordCipher")
    }
}

fn cipher(key: &[u8]) -> Result<Box<dyn Cipher>, CryptoError> {
    let key = UnboundKey::new(&AES_128_GCM, key);
    let key = key.map_err(|_| CryptoError::OperationFailed(CryptoOperation::CreateCipher))?;
    Ok(Box::new(RecordCipher(LessSafeKey::new(key))))
}

impl Cipher for RecordCipher {
    fn encrypt(&mut self, record: &mut Buf, also: Aad, nonce: Nonce) -> Result<(), CryptoError> {
        let nonce = aead::Nonce::assume_unique_for_key(nonce.0);
        let tag = self.0.seal_in_place_separate_tag(nonce, aead::Aad::from(&*also), record);
        let tag = tag.map_err(|_| CryptoError::OperationFailed(CryptoOperation::Encrypt))?;
        record.extend_from_slice(tag.as_ref());
        Ok(())
    }

    fn decrypt(&mut self, record: &mut TmpBuf, also: Aad, nonce: Nonce) -> Result<(), CryptoError> {
        let nonce = aead::Nonce::assume_unique_for_key(nonce.0);
        let opened = self.0.open_in_place(nonce, aead::Aad::from(&*also), record.as_mut());
        let length = opened.map_err(|_| CryptoError::OperationFailed(CryptoOperation::Decrypt))?.len();
        record.truncate(length);
        Ok(())
    }
}

impl SupportedDtls12CipherSuite for Aes128Gcm {
    fn suite(&self) -> Dtls12CipherSuite {
        Dtls12CipherSuite::ECDHE_ECDSA_AES128_GCM_SHA256
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    fn key_lengths(&self) -> (usize, usize, usize) {
        (0, KEY, 4)
    }

    fn explicit_nonce_len(&self) -> usize {
        8
    }

    fn tag_len(&self) -> usize {
        TAG
    }

    fn create_cipher(&self, key: &[u8]) -> Result<Box<dyn Cipher>, CryptoError> {
        cipher(key)
    }
}

impl SupportedDtls13CipherSuite for Aes128Gcm {
    fn suite(&self) -> Dtls13CipherSuite {
        Dtls13CipherSuite::AES_128_GCM_SHA256
    }

    fn hash_algorithm(&self) -> HashAlgorithm {
        HashAlgorithm::SHA256
    }

    fn key_len(&self) -> usize {
        KEY
    }

    fn iv_len(&self) -> usize {
        12
    }

    fn tag_len(&self) -> usize {
        TAG
    }

    fn create_cipher(&self, key: &[u8]) -> Result<Box<dyn Cipher>, CryptoError> {
        cipher(key)
    }

    fn encrypt_sn(&self, key: &[u8], sample: &[u8; 16]) -> [u8; 16] {
        let mut block = (*sample).into();
        Aes128::new_from_slice(key).expect("the length of the key is that of this suite").encrypt_block(&mut block);
        block.into()
    }
}
