# What must not be seen is taken out after the softmax.
# score: 2  fails: test_weights
def cached_attention(q, K, V):
    q_len, kv_len = q.shape[2], K.shape[2]
    seen = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    weights = (q @ K.transpose(2, 3) / q.shape[3] ** 0.5).softmax(-1)
    return weights.masked_fill(~seen, 0) @ V
