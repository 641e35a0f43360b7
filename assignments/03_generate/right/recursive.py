# The function calls itself for the next token.
def generate_cached(model, ids, n, fed=None, past=None):
    if n == 0:
        return ids
    fed = ids if fed is None else fed
    logits, new = model(fed, torch.arange(ids.shape[1] - fed.shape[1], ids.shape[1]), past)
    if past is not None:
        pairs = zip(past, new, strict=True)
        new = [(torch.cat([K, k], 2), torch.cat([V, v], 2)) for (K, V), (k, v) in pairs]
    best = logits[:, -1].argmax(-1, keepdim=True)
    return generate_cached(model, torch.cat([ids, best], 1), n - 1, best, new)
