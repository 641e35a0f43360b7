# A query sees the keys before its own, but not its own.
# score: 4  fails: test_one_query
def cached_attention(q, K, V):
    q_len, kv_len = q.shape[2], K.shape[2]
    seen = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len - 1)
    seen[:, 0] = True
    scores = q @ K.transpose(2, 3) / q.shape[3] ** 0.5
    return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ V
