import csv

from robandit import Bandit, Features

with open("visits.csv", newline="") as file:
    visits = list(csv.DictReader(file))
shelf = list({visit["item"]: visit for visit in visits}.values())
features = Features.fit(visits, action=["category", "price"], context=["user"], id="item", reward="click")
bandit = Bandit(features=features, rewards="clicks", seed=7)
for visit in visits:
    pick = bandit.choose(shelf, context=visit, source=visit["affiliate"])
    if pick.id == visit["item"]:
        bandit.learn(pick, float(visit["click"]))
