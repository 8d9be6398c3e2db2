"""BLAKE3 in plain Python, for the unkeyed hash of 32 bytes."""
import struct

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8
CHUNK_BYTES = 1024
M = 0xFFFFFFFF
# Columns, then diagonals.
MIXES = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
         (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


def compress(chain, block, counter, length, flags):
    """The eight words that follow from eight words of `chain` and a block of up to 64 bytes."""
    words = struct.unpack("<16I", block.ljust(64, b"\0"))
    v = list(chain) + list(IV[:4]) + [counter & M, counter >> 32, length, flags]
    for round_number in range(7):
        for n, (a, b, c, d) in enumerate(MIXES):
            va, vb, vc, vd = v[a], v[b], v[c], v[d]
            va = (va + vb + words[2 * n]) & M
            vd ^= va
            vd = (vd >> 16 | vd << 16) & M
            vc = (vc + vd) & M
            vb ^= vc
            vb = (vb >> 12 | vb << 20) & M
            va = (va + vb + words[2 * n + 1]) & M
            vd ^= va
            vd = (vd >> 8 | vd << 24) & M
            vc = (vc + vd) & M
            vb ^= vc
            v[a], v[b], v[c], v[d] = va, (vb >> 7 | vb << 25) & M, vc, vd
        if round_number < 6:
            words = [words[i] for i in ORDER]
    return tuple(v[i] ^ v[i + 8] for i in range(8))


def chunk(data, number, last_flags):
    """The chaining value of one chunk; `last_flags` are added to its last block."""
    chain = IV
    blocks = range(0, max(len(data), 1), 64)
    for start in blocks:
        block = data[start:start + 64]
        flags = (CHUNK_START if start == 0 else 0)
        if start == blocks[-1]:
            flags |= CHUNK_END | last_flags
        chain = compress(chain, block, number, len(block), flags)
    return chain


def subtree(data, first_number, last_flags):
    if len(data) <= CHUNK_BYTES:
        return chunk(data, first_number, last_flags)
    # The left side has the greatest power of two of chunks that leaves something for the right.
    chunks = (len(data) - 1) // CHUNK_BYTES
    left = 1 << (chunks.bit_length() - 1)
    both = (subtree(data[:left * CHUNK_BYTES], first_number, 0)
            + subtree(data[left * CHUNK_BYTES:], first_number + left, 0))
    return compress(IV, struct.pack("<16I", *both), 0, 64, PARENT | last_flags)


def blake3(data):
    """The hash of `data` as 64 hex digits."""
    return struct.pack("<8I", *subtree(data, 0, ROOT)).hex()


def self_test():
    """The published test vectors: bytes 0, 1, .., 250, 0, 1, .. of the given length."""
    for length, expected in [
        (0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        (1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"),
        (1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"),
        (1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"),
    ]:
        assert blake3(bytes(i % 251 for i in range(length))) == expected, length


self_test()
