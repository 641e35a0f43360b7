# The past is one list, and its entries are replaced in place.
def generate_cached(model, ids, n):
    past, fed, start = None, ids, 0
    for _ in range(n):
        logits, new = model(fed, torch.arange(start, start + fed.shape[1]), past)
        if past is None:
            past = list(new)
        else:
            for i, (k, v) in enumerate(new):
                past[i] = (torch.cat([past[i][0], k], dim=2), torch.cat([past[i][1], v], dim=2))
        start += fed.shape[1]
        fed = logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, fed], dim=1)
    return ids
