# The group is an axis of its own.
def step(cache, q, k, v):
    cache["k"], cache["v"] = torch.cat((cache["k"], k), 2), torch.cat((cache["v"], v), 2)
    b, h, _, d = q.shape
    n = k.shape[1]
    scores = torch.einsum("bngd,bnjd->bngj", q.view(b, n, h // n, d), cache["k"]) / d**0.5
    weights = torch.softmax(scores, -1)
    return torch.einsum("bngj,bnjd->bngd", weights, cache["v"]).reshape(b, h, 1, d)
