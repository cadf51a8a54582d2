# SPDX-License-Identifier: MPL-2.0
import pytest

import gsttrt
from gsttrt._redact import redacted


@pytest.mark.parametrize(
    "address, shown",
    [
        ("a.mp4", "a.mp4"),
        ("/videos/me@home=1.mp4", "/videos/me@home=1.mp4"),
        ("file:///a@b/token=c.mp4", "file:///a@b/token=c.mp4"),
        ("https://host/a/b.mp4", "https://host/a/b.mp4"),
        ("https://host/20260101_entrance_camera.mp4", "https://host/20260101_entrance_camera.mp4"),
        ("https://host/get?id=7&camera=3", "https://host/get?id=7&camera=3"),
        ("https://me:secret@host/a.mp4", "https://***@host/a.mp4"),
        ("rtsp://token@host:1/a", "rtsp://***@host:1/a"),
        ("ftp://me:se@cret@host/a", "ftp://***@host/a"),
        ("rtsp://me:se/cr?et@host/a", "rtsp://***@host/a"),
        ("https://host/@user/a.mp4", "https://host/@user/a.mp4"),
        ("https://host:80/@user/a.mp4", "https://host:80/@user/a.mp4"),
        ("https://host/a.mp4?id=7&token=secret", "https://host/a.mp4?id=7&token=***"),
        ("https://host/a?X-Amz-Credential=a%2Fb&X-Amz-Date=1&X-Amz-Signature=f00", "https://host/a?X-Amz-Credential=***&X-Amz-Date=1&X-Amz-Signature=***"),
        ("https://account.host/a.mp4?sv=2024&sig=a/b%3D", "https://account.host/a.mp4?sv=2024&sig=***"),
        ("https://host/a?p%61ssword=x", "https://host/a?p%61ssword=***"),
        ("rtsp://host/user=admin&password=x&channel=1", "rtsp://host/user=***&password=***&channel=1"),
        ("Cannot read HTTP://me:secret@host/a: gone. See http://me:secret@b", "Cannot read HTTP://***@host/a: gone. See http://***@b"),
    ],
)
def test_addresses_are_shown_without_secrets(address, shown):
    assert redacted(address) == shown and redacted(shown) == shown


def test_errors_of_videos_have_no_secrets(detector):
    address = "http://me:hunter2@127.0.0.1:9/a.mp4?token=hunter2&id=7"
    with pytest.raises(gsttrt.ReadError) as error:
        next(gsttrt.detect(address, detector))
    assert "http://***@127.0.0.1:9/a.mp4?token=***&id=7" in str(error.value) and "hunter2" not in str(error.value)
