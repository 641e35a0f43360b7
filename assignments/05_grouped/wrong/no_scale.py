# The scores are not divided by the square root of head_dim.
# score: 7  fails: test_numbers
def step(cache, q, k, v):
    cache["k"] = torch.cat([cache["k"], k], dim=2)
    cache["v"] = torch.cat([cache["v"], v], dim=2)
    grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
    return ((grouped @ cache["k"].transpose(2, 3)).softmax(-1) @ cache["v"]).reshape(q.shape)
