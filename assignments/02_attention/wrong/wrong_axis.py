# The softmax runs over the queries, not over the keys. (The large number, and not infinity, is there
# because a key that no query sees would give NaN.)
# score: 1  fails: test_weights
def cached_attention(q, K, V):
    q_len, kv_len = q.shape[2], K.shape[2]
    seen = torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
    scores = q @ K.transpose(2, 3) / q.shape[3] ** 0.5
    return scores.masked_fill(~seen, -1e30).softmax(-2) @ V
