# Every query sees every key.
# score: 3  fails: test_future
def cached_attention(q, K, V):
    return (q @ K.transpose(2, 3) / q.shape[3] ** 0.5).softmax(-1) @ V
